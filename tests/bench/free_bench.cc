// Latency of 4 KiB loads beside discards (E5), and of the discards. Ranges of 2 MiB that were
// filled before are discarded one each millisecond, whatever the loads do, and no range twice, so
// that nothing has to be filled meanwhile.
//   discard, discard+overwrite  A thread of its own discards. With a loader for each core, asking
//              without pause, a load is sometimes in the way of a discard and waits for it. A
//              duration is the time in the pool.
//   one-queue  One thread serves loads and discards in the order in which they arrive, as
//              `nbdkit -t 1` or a guest's only queue does. Loads arrive one each so many
//              microseconds on average. A duration is from arrival to completion: a load that
//              arrives during a discard waits for it, and so does what arrives behind that load.
// usage: free_bench discard|discard+overwrite SWITCHES SECONDS LOADERS
//        free_bench one-queue SWITCHES SECONDS LOAD_PERIOD_US
// Prints a JSON object. free.sh runs both ways in turn and compares.

#include <atomic>
#include <latch>

#include "tests/bench/bench.h"

namespace {

using namespace cswap;
using namespace cswap::bench;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPeriod{1};
// Where loads go, and where the writes of the second variant go: neither is ever discarded.
constexpr uint64_t kLoadPages = 128ull << 20 >> kPageShift;
constexpr uint64_t kOverwritePages = 32ull << 20 >> kPageShift;
constexpr uint64_t kLoadsBefore = 1000;
constexpr double kMostLoadsASecond = 2e6;

template <typename Work>
void timed(Samples& samples, Work&& work) {
  const Clock::time_point start = Clock::now();
  work();
  samples.add(static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count()));
}

// Several at once, since it is not what is measured.
void fill(Device& device) {
  const uint64_t threads = std::max(1u, std::thread::hardware_concurrency());
  const uint64_t share = (device.pages() / threads + kThpPages) / kThpPages * kThpPages;
  std::vector<std::jthread> fillers;
  for (uint64_t first = 0; first < device.pages(); first += share) {
    fillers.emplace_back(
        [&device, first, share] { device.fill(first, std::min(first + share, device.pages())); });
  }
}

class Loaders {
 public:
  Loaders(Device& device, double seconds, size_t count)
      : ready_(static_cast<ptrdiff_t>(count) + 1),
        samples_(count, Samples(static_cast<size_t>(kMostLoadsASecond * (seconds + 1)))) {
    for (size_t i = 0; i < samples_.size(); ++i) {
      threads_.emplace_back([this, &device, i] { run(device, samples_[i], i + 1); });
    }
    ready_.arrive_and_wait();
  }
  Samples stop() {
    stopping_ = true;
    threads_.clear();
    Samples all;
    for (const Samples& samples : samples_) all.append(samples);
    return all;
  }

 private:
  void run(Device& device, Samples& samples, uint64_t seed) {
    Random random(seed);
    Page page;
    const auto load = [&] { device.load(random.below(kLoadPages), page); };
    for (uint64_t i = 0; i < kLoadsBefore; ++i) load();
    ready_.arrive_and_wait();
    while (!stopping_.load(std::memory_order_relaxed)) timed(samples, load);
  }

  std::latch ready_;
  std::atomic<bool> stopping_{false};
  std::vector<Samples> samples_;
  std::vector<std::jthread> threads_;  // ends before what it uses
};

// What one run found. A discard is late when it began a period after it was due.
struct Result {
  explicit Result(uint64_t discard_count) : discards(discard_count), stores(discard_count) {}

  double seconds = 0;
  uint64_t late_discards = 0;
  Samples loads;
  Samples discards;
  Samples stores;
};

// Where the discards go.
constexpr uint64_t kFirstDiscarded = kLoadPages + kOverwritePages;

void discard_next(Device& device, uint64_t i) {
  device.discard(kFirstDiscarded + i * kThpPages, kThpPages);
}

void run_beside_loaders(Device& device, bool overwrite, uint64_t discards, size_t loader_count,
                        Result& result) {
  Random random(0);
  Loaders loaders(device, static_cast<double>(discards) / 1000, loader_count);
  const Clock::time_point start = Clock::now();
  for (uint64_t i = 0; i < discards; ++i) {
    const Clock::time_point due = start + i * kPeriod;
    std::this_thread::sleep_until(due);
    if (Clock::now() > due + kPeriod) ++result.late_discards;
    timed(result.discards, [&] { discard_next(device, i); });
    if (!overwrite) continue;
    const uint64_t page = kLoadPages + random.below(kOverwritePages / kMthpPages) * kMthpPages;
    timed(result.stores, [&] { device.store(page, corpus_run(random(), kMthpPages)); });
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.loads = loaders.stop();
}

// Serves what is due, the earlier first, and waits for the next without sleeping, since waking up
// is not what is measured.
void run_one_queue(Device& device, uint64_t discards, std::chrono::nanoseconds load_period,
                   Result& result) {
  Random random(0);
  Page page;
  const auto load = [&] { device.load(random.below(kLoadPages), page); };
  for (uint64_t i = 0; i < kLoadsBefore; ++i) load();

  const uint64_t loads = discards * std::chrono::nanoseconds(kPeriod) / load_period;
  result.loads = Samples(loads);
  const Clock::time_point start = Clock::now();
  // Anywhere in its share of the time, so that loads meet discards at any phase.
  const auto load_due = [&](uint64_t i) {
    const auto shift = random.below(static_cast<uint64_t>(load_period.count()));
    return start + i * load_period + std::chrono::nanoseconds(shift);
  };
  const auto complete = [](Samples& samples, Clock::time_point due, auto&& work) {
    work();
    samples.add(static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - due).count()));
  };
  uint64_t next_load = 0;
  uint64_t next_discard = 0;
  Clock::time_point due_load = load_due(0);
  while (next_load < loads || next_discard < discards) {
    const Clock::time_point due_discard = start + next_discard * kPeriod;
    const bool is_load = next_discard == discards || (next_load < loads && due_load < due_discard);
    const Clock::time_point due = is_load ? due_load : due_discard;
    Clock::time_point now = Clock::now();
    while (now < due) now = Clock::now();
    if (is_load) {
      complete(result.loads, due, load);
      due_load = load_due(++next_load);
    } else {
      if (now > due + kPeriod) ++result.late_discards;
      complete(result.discards, due, [&] { discard_next(device, next_discard); });
      ++next_discard;
    }
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
}

void measure(const std::string& variant, const char* switches, double seconds, uint64_t number) {
  const auto discards = static_cast<uint64_t>(seconds * 1000);
  Device device("lz4", switches, kFirstDiscarded + discards * kThpPages);
  fill(device);
  device.settle();

  Result result(discards);
  if (variant == "one-queue") {
    run_one_queue(device, discards, std::chrono::microseconds(number), result);
  } else {
    run_beside_loaders(device, variant == "discard+overwrite", discards, number, result);
  }
  device.settle();
  const PoolSnapshot snapshot = device.pool().snapshot();
  std::printf(
      "{\"variant\": \"%s\", \"switches\": \"%s\", \"seconds\": %.3f, \"late_discards\": %llu, "
      "\"freed_in_request\": %llu, \"freed_in_background\": %llu,\n \"loads\": %s,\n "
      "\"discards\": %s,\n \"stores\": %s}\n",
      variant.c_str(), switches, result.seconds,
      static_cast<unsigned long long>(result.late_discards),
      static_cast<unsigned long long>(snapshot.freed_in_request),
      static_cast<unsigned long long>(snapshot.freed_in_background), result.loads.json().c_str(),
      result.discards.json().c_str(), result.stores.json().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string variant = argc > 1 ? argv[1] : "";
  const uint64_t number = argc == 5 ? std::strtoull(argv[4], nullptr, 10) : 0;
  if ((variant != "discard" && variant != "discard+overwrite" && variant != "one-queue") ||
      (number == 0 && variant == "one-queue") || argc != 5) {
    bench::fail(
        "usage: free_bench discard|discard+overwrite SWITCHES SECONDS LOADERS\n"
        "       free_bench one-queue SWITCHES SECONDS LOAD_PERIOD_US");
  }
  measure(variant, argv[2], std::strtod(argv[3], nullptr), number);
  return 0;
}
