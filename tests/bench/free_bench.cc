// Latency of 4 KiB loads while another thread discards (E5), and of the discards. With a loader for
// each core, asking without pause, a load is sometimes in the way of a discard and waits for it.
// Ranges of 2 MiB that were filled before are discarded one each millisecond, whatever the
// loads do, and no range twice, so that nothing has to be filled meanwhile.
// usage: free_bench discard|discard+overwrite SWITCHES SECONDS LOADERS
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

void measure(const std::string& variant, const char* switches, double seconds,
             size_t loader_count) {
  const bool overwrite = variant == "discard+overwrite";
  if (!overwrite && variant != "discard") fail("no variant '" + variant + "'");
  const auto discards = static_cast<uint64_t>(seconds * 1000);
  constexpr uint64_t kFirst = kLoadPages + kOverwritePages;
  Device device("lz4", switches, kFirst + discards * kThpPages);
  fill(device);
  device.settle();

  Samples discard_samples(discards);
  Samples store_samples(discards);
  uint64_t late = 0;
  Random random(0);
  Loaders loaders(device, seconds, loader_count);
  const Clock::time_point start = Clock::now();
  for (uint64_t i = 0; i < discards; ++i) {
    const Clock::time_point due = start + i * kPeriod;
    std::this_thread::sleep_until(due);
    if (Clock::now() > due + kPeriod) ++late;
    timed(discard_samples, [&] { device.discard(kFirst + i * kThpPages, kThpPages); });
    if (!overwrite) continue;
    const uint64_t page = kLoadPages + random.below(kOverwritePages / kMthpPages) * kMthpPages;
    timed(store_samples, [&] { device.store(page, corpus_run(random(), kMthpPages)); });
  }
  const double taken = std::chrono::duration<double>(Clock::now() - start).count();
  Samples loads = loaders.stop();
  device.settle();
  const PoolSnapshot snapshot = device.pool().snapshot();
  std::printf(
      "{\"variant\": \"%s\", \"switches\": \"%s\", \"seconds\": %.3f, \"late_discards\": %llu, "
      "\"freed_in_request\": %llu, \"freed_in_background\": %llu,\n \"loads\": %s,\n "
      "\"discards\": %s,\n \"stores\": %s}\n",
      variant.c_str(), switches, taken, static_cast<unsigned long long>(late),
      static_cast<unsigned long long>(snapshot.freed_in_request),
      static_cast<unsigned long long>(snapshot.freed_in_background), loads.json().c_str(),
      discard_samples.json().c_str(), store_samples.json().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5)
    bench::fail("usage: free_bench discard|discard+overwrite SWITCHES SECONDS LOADERS");
  measure(argv[1], argv[2], std::strtod(argv[3], nullptr), std::strtoull(argv[4], nullptr, 10));
  return 0;
}
