// The pool in one process against the bare codec on the same pages: what the pool adds to the work
// that no design avoids. tests/bench/run.sh prints the ratios with their spread.

#include <benchmark/benchmark.h>
#include <lz4.h>
#include <zstd.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "compress/codecs.h"
#include "core/check.h"
#include "core/pool.h"
#include "tests/support/corpus.h"

namespace {

using cswap::kPageBytes;
using cswap::Pool;
using cswap::PoolOptions;
using cswap::Status;
using cswap::Tenant;
using cswap::test::corpus_pages;
using cswap::test::Page;

struct Fixture {
  explicit Fixture(const std::string& codec) {
    PoolOptions options;
    options.codec = cswap::parse_codec(codec);
    const uint64_t bytes = corpus_pages().size() * kPageBytes;
    pool = std::make_unique<Pool>(options, bytes);
    tenant = &pool->add_tenant("", bytes);
  }
  void store(size_t i) const {
    CSWAP_CHECK(pool->store(*tenant, i * kPageBytes, corpus_pages()[i]) == Status::kOk);
  }

  std::unique_ptr<Pool> pool;
  Tenant* tenant = nullptr;
};

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

struct Packed {
  std::vector<std::byte> bytes;
  size_t length = 0;
};

void bare_lz4_store(benchmark::State& state) {
  std::vector<std::byte> out(LZ4_compressBound(kPageBytes));
  per_page(state, [&](size_t i) {
    benchmark::DoNotOptimize(LZ4_compress_default(
        reinterpret_cast<const char*>(corpus_pages()[i].data()),
        reinterpret_cast<char*>(out.data()), kPageBytes, static_cast<int>(out.size())));
  });
}

void bare_lz4_load(benchmark::State& state) {
  std::vector<Packed> packed(corpus_pages().size());
  for (size_t i = 0; i < packed.size(); ++i) {
    packed[i].bytes.resize(LZ4_compressBound(kPageBytes));
    packed[i].length = static_cast<size_t>(
        LZ4_compress_default(reinterpret_cast<const char*>(corpus_pages()[i].data()),
                             reinterpret_cast<char*>(packed[i].bytes.data()), kPageBytes,
                             static_cast<int>(packed[i].bytes.size())));
  }
  Page page;
  per_page(state, [&](size_t i) {
    benchmark::DoNotOptimize(LZ4_decompress_safe(
        reinterpret_cast<const char*>(packed[i].bytes.data()), reinterpret_cast<char*>(page.data()),
        static_cast<int>(packed[i].length), kPageBytes));
    benchmark::ClobberMemory();
  });
}

void bare_zstd_store(benchmark::State& state) {
  std::vector<std::byte> out(ZSTD_compressBound(kPageBytes));
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  per_page(state, [&](size_t i) {
    benchmark::DoNotOptimize(ZSTD_compressCCtx(context, out.data(), out.size(),
                                               corpus_pages()[i].data(), kPageBytes,
                                               ZSTD_CLEVEL_DEFAULT));
  });
  ZSTD_freeCCtx(context);
}

// Every store replaces what the pass before stored: allocation and free, no new memory.
void pool_store(benchmark::State& state, const char* codec) {
  const Fixture fixture(codec);
  for (size_t i = 0; i < corpus_pages().size(); ++i) fixture.store(i);
  per_page(state, [&](size_t i) { fixture.store(i); });
}

// Every store is the first of its page: memory is taken from the OS page by page.
void pool_store_first(benchmark::State& state, const char* codec) {
  const Fixture fixture(codec);
  const size_t pages = corpus_pages().size();
  for (auto _ : state) {
    for (size_t i = 0; i < pages; ++i) fixture.store(i);
    state.PauseTiming();
    fixture.pool->discard(*fixture.tenant, 0, pages * kPageBytes);
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(pages));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(pages * kPageBytes));
}

void pool_load(benchmark::State& state, const char* codec) {
  const Fixture fixture(codec);
  for (size_t i = 0; i < corpus_pages().size(); ++i) fixture.store(i);
  Page page;
  per_page(state, [&](size_t i) {
    CSWAP_CHECK(fixture.pool->load(*fixture.tenant, i * kPageBytes, page) == Status::kOk);
    benchmark::ClobberMemory();
  });
}

BENCHMARK(bare_lz4_store);
BENCHMARK_CAPTURE(pool_store, lz4, "lz4");
BENCHMARK_CAPTURE(pool_store_first, lz4, "lz4");
BENCHMARK(bare_lz4_load);
BENCHMARK_CAPTURE(pool_load, lz4, "lz4");
BENCHMARK(bare_zstd_store);
BENCHMARK_CAPTURE(pool_store, zstd, "zstd");
BENCHMARK_CAPTURE(pool_load, zstd, "zstd");
BENCHMARK_CAPTURE(pool_load, none, "none");

}  // namespace

BENCHMARK_MAIN();
