// The pool in one process, one page a request, against the bare codec on the same pages: what the
// pool adds to the work that no design avoids. pool.sh prints the ratios with their spread, and
// lock_stats.sh what the lock statistics cost.

#include <benchmark/benchmark.h>

#include <vector>

#include "core/mutex.h"
#include "tests/bench/bench.h"

namespace {

using namespace cswap;
using namespace cswap::bench;

// One pass over the corpus is one iteration; reports time per page.
template <typename PerPage>
void per_page(benchmark::State& state, PerPage&& work) {
  const size_t pages = corpus_pages().size();
  for (auto _ : state) {
    for (size_t i = 0; i < pages; ++i) work(i);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(pages));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(pages * kPageBytes));
}

template <typename Codec>
void bare_store(benchmark::State& state) {
  Codec codec;
  per_page(state, [&](size_t i) { benchmark::DoNotOptimize(codec.compress(corpus_pages()[i])); });
}

void bare_lz4_load(benchmark::State& state) {
  BareLz4 codec;
  std::vector<std::vector<char>> packed;
  for (const Page& page : corpus_pages()) {
    const std::span<const char> bytes = codec.compressed(codec.compress(page));
    packed.emplace_back(bytes.begin(), bytes.end());
  }
  Page page;
  per_page(state, [&](size_t i) {
    BareLz4::decompress(packed[i], page);
    benchmark::ClobberMemory();
  });
}

struct Filled : Device {
  explicit Filled(const char* codec) : Device(codec, "", corpus_pages().size()) { store_all(); }
  void store_all() {
    for (size_t i = 0; i < pages(); ++i) store(i, corpus_pages()[i]);
  }
};

// Every store replaces what the pass before stored: allocation and free, no new memory.
void pool_store(benchmark::State& state, const char* codec) {
  Filled device(codec);
  per_page(state, [&](size_t i) { device.store(i, corpus_pages()[i]); });
}

// Every store is the first of its page: memory is taken from the OS page by page.
void pool_store_first(benchmark::State& state, const char* codec) {
  Filled device(codec);
  for (auto _ : state) {
    state.PauseTiming();
    device.discard(0, device.pages());
    device.settle();
    state.ResumeTiming();
    device.store_all();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(device.pages()));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(device.pages() * kPageBytes));
}

void pool_load(benchmark::State& state, const char* codec) {
  Filled device(codec);
  Page page;
  per_page(state, [&](size_t i) {
    device.load(i, page);
    benchmark::ClobberMemory();
  });
}

// A lock that nobody else wants; an item is taking it and letting go of it.
void lock_unlock(benchmark::State& state) {
  const auto counted = [] {
    uint64_t sum = 0;
    for (const LockSnapshot& lock : LockStats::snapshot()) sum += lock.acquired;
    return sum;
  };
  const uint64_t before = counted();
  Mutex<LockRank::kStore> mutex;
  for (auto _ : state) {
    mutex.lock();
    benchmark::ClobberMemory();
    mutex.unlock();
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["locks_counted"] = static_cast<double>(counted() - before);
}

BENCHMARK(bare_store<BareLz4>)->Name("bare_lz4_store");
BENCHMARK(bare_store<BareLz4>)->Name("all_cores_lz4_store")->ThreadPerCpu();
BENCHMARK_CAPTURE(pool_store, lz4, "lz4");
BENCHMARK_CAPTURE(pool_store_first, lz4, "lz4");
BENCHMARK(bare_lz4_load);
BENCHMARK_CAPTURE(pool_load, lz4, "lz4");
BENCHMARK(bare_store<BareZstd>)->Name("bare_zstd_store");
BENCHMARK_CAPTURE(pool_store, zstd, "zstd");
BENCHMARK_CAPTURE(pool_load, zstd, "zstd");
BENCHMARK_CAPTURE(pool_store, none, "none");
BENCHMARK_CAPTURE(pool_load, none, "none");
BENCHMARK(lock_unlock);

}  // namespace

BENCHMARK_MAIN();
