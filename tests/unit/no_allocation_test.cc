// Nothing in a request path allocates from the heap, in cswap or in the libraries under it. This
// program replaces malloc, so it is not built with a sanitizer.
#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>

#include "core/pool.h"
#include "tests/support/model_device.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<uint64_t> allocations{0};

void note_allocation() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1);
}
}  // namespace

// glibc's own, under the names that it keeps for this use.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

__attribute__((visibility("default"))) void* malloc(size_t bytes) {
  note_allocation();
  return __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void* calloc(size_t n, size_t bytes) {
  note_allocation();
  return __libc_calloc(n, bytes);
}
__attribute__((visibility("default"))) void* realloc(void* old, size_t bytes) {
  note_allocation();
  return __libc_realloc(old, bytes);
}
__attribute__((visibility("default"))) void* aligned_alloc(size_t alignment, size_t bytes) {
  note_allocation();
  return __libc_memalign(alignment, bytes);
}
__attribute__((visibility("default"))) void* memalign(size_t alignment, size_t bytes) {
  note_allocation();
  return __libc_memalign(alignment, bytes);
}
}

namespace cswap {
namespace {

constexpr uint64_t kPages = 4096;

// One round of every kind of request.
void run_requests(Pool& pool, Tenant& tenant, uint64_t round) {
  std::array<test::Page, 3> pages;
  for (uint64_t i = 0; i < 200; ++i) {
    const uint64_t offset = (round * 200 + i) % (kPages - 4) * kPageBytes;
    pages.fill(test::corpus_pages()[(round + i) % test::corpus_pages().size()]);
    const auto bytes = std::as_bytes(std::span(pages));
    (void)pool.store(tenant, offset, bytes);
    (void)pool.store(tenant, offset + 513, bytes.first(kPageBytes + 100));
    (void)pool.load(tenant, offset, std::as_writable_bytes(std::span(pages)));
    (void)pool.load(tenant, offset + 7, std::as_writable_bytes(std::span(pages)).first(5000));
    (void)pool.zero(tenant, offset + 100, kPageBytes);
    pool.discard(tenant, offset, kPageBytes);
  }
}

TEST_CASE("the counter of allocations counts") {
  counting = true;
  const std::unique_ptr<int> one(new int(1));
  void* volatile two = std::malloc(10);
  counting = false;
  std::free(two);
  CHECK(allocations.exchange(0) == 2);
}

TEST_CASE("store, load, zero and discard allocate nothing from the first request on") {
  for (const std::string name : {"lz4", "lz4:17", "none", "zstd", "zstd:-5", "zstd:19"}) {
    for (const uint64_t limit : {uint64_t{0}, uint64_t{4} << 20}) {
      CAPTURE(name);
      CAPTURE(limit);
      (void)test::corpus_pages();
      Pool pool(test::options_for(name, limit != 0, limit), kPages * kPageBytes);
      Tenant& tenant = pool.add_tenant("", kPages * kPageBytes);
      counting = true;
      // libzstd thinks again about its workspace after 128 pages.
      const uint64_t rounds = name == "zstd:19" ? 1 : 4;
      for (uint64_t round = 0; round < rounds; ++round) run_requests(pool, tenant, round);
      counting = false;
      CHECK(allocations.exchange(0) == 0);
      pool.check_invariants(2);
    }
  }
}

}  // namespace
}  // namespace cswap
