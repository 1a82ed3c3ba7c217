// A request stored as one batch or page by page (E2), one thread, against the bare codec on the
// same pages. batch.sh prints the ratios.

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "tests/bench/bench.h"

namespace {

using namespace cswap;
using namespace cswap::bench;

// The corpus twice, the second time varied, cut to whole 2 MiB requests.
const std::vector<Page>& content() {
  static const std::vector<Page> pages = [] {
    std::vector<Page> made = corpus_pages();
    for (size_t i = 0; i < corpus_pages().size(); ++i) {
      made.push_back(corpus_pages()[i]);
      test::vary(made.back(), i + 1);
    }
    made.resize(made.size() / kThpPages * kThpPages);
    return made;
  }();
  return pages;
}

void set_pages(benchmark::State& state) {
  const auto pages = static_cast<int64_t>(content().size());
  state.SetItemsProcessed(state.iterations() * pages);
  state.SetBytesProcessed(state.iterations() * pages * kPageBytes);
}

template <typename Codec>
void bare(benchmark::State& state) {
  Codec codec;
  for (auto _ : state) {
    for (const Page& page : content()) benchmark::DoNotOptimize(codec.compress(page));
  }
  set_pages(state);
}

void store_all(Device& device, size_t request_pages) {
  for (size_t i = 0; i < content().size(); i += request_pages) {
    device.store(i, std::as_bytes(std::span(content()).subspan(i, request_pages)));
  }
}

enum class Over { kOlderContent, kNothing };

void pool(benchmark::State& state, const char* codec, const char* batch, size_t request_pages,
          Over over) {
  Device device(codec, batch, content().size());
  store_all(device, request_pages);
  for (auto _ : state) {
    if (over == Over::kNothing) {
      state.PauseTiming();
      device.discard(0, device.pages());
      device.settle();
      state.ResumeTiming();
    }
    store_all(device, request_pages);
  }
  set_pages(state);
}

// The bare codec again beside each pair, so that what is compared was measured together.
template <typename Codec>
void register_codec(const char* codec) {
  for (const size_t pages : {size_t{1}, kMthpPages, kThpPages}) {
    for (const Over over : {Over::kOlderContent, Over::kNothing}) {
      const std::string name = std::string(codec) + "/" + std::to_string(pages * 4) + "k/" +
                               (over == Over::kNothing ? "first" : "overwrite") + "/";
      benchmark::RegisterBenchmark((name + "bare").c_str(), bare<Codec>);
      for (const char* const batch : {"batch=on", "batch=off"}) {
        benchmark::RegisterBenchmark((name + batch).c_str(), pool, codec, batch, pages, over);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  (void)content();  // made before anything is measured
  register_codec<BareLz4>("lz4");
  register_codec<BareZstd>("zstd");
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
