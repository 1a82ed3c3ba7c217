// Threads that store and load random pages of one device (E1's anon-w-rand), by allocator and by
// the way of freeing. Each is to be run in a process of its own, since the longest wait for a lock
// is of the whole process. contention.sh does so and prints the tables.
// usage: contention_bench DEVICE_MIB --benchmark_filter=...

#include <benchmark/benchmark.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/lock_stats.h"
#include "tests/bench/bench.h"

namespace {

using namespace cswap;
using namespace cswap::bench;

uint64_t device_pages = 0;  // set before any thread starts

using Clock = std::chrono::steady_clock;

struct Shared {
  std::unique_ptr<Device> device;
  std::vector<LockSnapshot> before;
  std::chrono::duration<double> run{0};  // sum of all runs
  Clock::time_point start;
};
Shared shared;

void count(benchmark::State& state, const std::string& lock, const LockWaits& now,
           const LockWaits& before) {
  state.counters[lock + "/contended"] = static_cast<double>(now.contended - before.contended);
  state.counters[lock + "/total_ns"] = static_cast<double>(now.total_ns - before.total_ns);
  state.counters[lock + "/max_ns"] = static_cast<double>(now.max_ns);
}

// What was counted since `before`, by class, and by class and caller.
void count_locks(benchmark::State& state, const std::vector<LockSnapshot>& before) {
  const std::vector<LockSnapshot> now = LockStats::snapshot();
  for (size_t i = 0; i < now.size(); ++i) {
    const std::string lock = "lock/" + now[i].name;
    if (now[i].acquired == before[i].acquired) continue;
    state.counters[lock + "/acquired"] = static_cast<double>(now[i].acquired - before[i].acquired);
    count(state, lock, now[i].waits, before[i].waits);
    std::map<std::string, LockWaits> earlier;
    for (const LockWaits& waits : before[i].callers) earlier[waits.caller] = waits;
    for (const LockWaits& waits : now[i].callers) {
      count(state, lock + "/" + waits.caller, waits, earlier[waits.caller]);
    }
  }
}

// An iteration is one store and one load.
void random_pages(benchmark::State& state, size_t request_pages, const char* switches) {
  const bool first = state.thread_index() == 0;
  if (first) {
    // There are several runs until one is long enough; one fill serves all, and waits are of all.
    if (shared.device == nullptr) {
      shared.device = std::make_unique<Device>("lz4", switches, device_pages);
      shared.device->fill(0, device_pages);
      shared.before = LockStats::snapshot();
    }
    shared.start = Clock::now();
  }
  Random random(static_cast<uint64_t>(state.thread_index()) + 1);
  std::vector<std::byte> loaded(request_pages * kPageBytes);
  const auto random_request = [&] {
    return random.below(device_pages / request_pages) * request_pages;
  };
  // All threads wait for each other where the loop begins and where it ends.
  for (auto _ : state) {
    Device& device = *shared.device;
    device.store(random_request(), corpus_run(random(), request_pages));
    device.load(random_request(), loaded);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(2 * request_pages));
  if (first) {
    shared.run += Clock::now() - shared.start;
    state.counters["seconds"] = shared.run.count();
    count_locks(state, shared.before);
  }
}

void register_all() {
  for (const size_t pages : {size_t{1}, kMthpPages}) {
    for (const char* const free : {"free=async", "free=sync"}) {
      for (const char* const alloc : {"alloc=cluster", "alloc=global"}) {
        const std::string switches = std::string(alloc) + " " + free;
        const std::string name = std::to_string(pages * 4) + "k/" + alloc + "/" + free;
        benchmark::RegisterBenchmark(name.c_str(),
                                     [pages, switches](benchmark::State& state) {
                                       random_pages(state, pages, switches.c_str());
                                     })
            ->ThreadRange(1, 16)
            ->UseRealTime();
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const char* const usage = "usage: contention_bench DEVICE_MIB --benchmark_filter=...";
  if (argc != 2) bench::fail(usage);
  device_pages = std::strtoull(argv[1], nullptr, 10) << 20 >> kPageShift;
  if (device_pages == 0) bench::fail(usage);
  register_all();
  if (benchmark::RunSpecifiedBenchmarks() > 1) bench::fail("run one benchmark a process");
  shared.device.reset();
  return 0;
}
