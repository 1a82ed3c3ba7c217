// How much memory the pool uses beyond the compressed bytes themselves. Prints a table: for one
// copy of the corpus, and for as many varied copies as fill the given MiB (default 1024).

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "compress/codecs.h"
#include "core/check.h"
#include "core/pool.h"
#include "tests/support/corpus.h"

namespace {

using namespace cswap;
using cswap::test::corpus_pages;

uint64_t own_resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size = 0;
  uint64_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

double mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void measure(const char* codec, uint64_t pages) {
  PoolOptions options;
  options.codec = parse_codec(codec);
  Pool pool(options, pages * kPageBytes);
  Tenant& tenant = pool.add_tenant("", pages * kPageBytes);
  const uint64_t before = own_resident_bytes();
  for (uint64_t i = 0; i < pages; ++i) {
    test::Page page = corpus_pages()[i % corpus_pages().size()];
    test::vary(page, i / corpus_pages().size());
    CSWAP_CHECK(pool.store(tenant, i * kPageBytes, page) == Status::kOk);
  }
  const PoolSnapshot snapshot = pool.snapshot();
  const TenantSnapshot& sums = snapshot.tenants[0];
  const uint64_t resident = own_resident_bytes() - before;
  const auto compressed = static_cast<double>(sums.compr_data_size);
  const auto used = static_cast<double>(snapshot.mem_used_total);
  std::printf("%-8s %9llu %11.1f %11.1f %11.1f %11.1f %8.2f %12.4f %12.4f %10.4f\n", codec,
              static_cast<unsigned long long>(pages), mib(sums.orig_data_size),
              mib(sums.compr_data_size), mib(snapshot.mem_used_total), mib(resident),
              static_cast<double>(sums.orig_data_size) / used, used / compressed,
              (used - 8 * static_cast<double>(pages)) / compressed,
              static_cast<double>(resident) / used);
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t fill_mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1024;
  const uint64_t fill_pages = std::max<uint64_t>(fill_mib << 20 >> kPageShift, 1);
  (void)corpus_pages();
  std::printf("%-8s %9s %11s %11s %11s %11s %8s %12s %12s %10s\n", "codec", "pages", "orig MiB",
              "compr MiB", "used MiB", "RSS MiB", "ratio", "used/compr", "less 8B/page",
              "RSS/used");
  for (const char* const codec : {"lz4", "zstd"}) {
    measure(codec, corpus_pages().size());
    measure(codec, fill_pages);
  }
  return 0;
}
