// O10. At the memory limit requests fail whole, with ENOSPC, and leave every page as it was.
#include <doctest/doctest.h>

#include <functional>
#include <latch>

#include "tests/support/model_device.h"
#include "tests/support/resident.h"

namespace cswap {
namespace {

using test::ModelDevice;
using test::options_for;
using test::Page;
using test::PageKind;
using test::Random;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Stores pages at `from` and after it until one is refused; returns how many were stored.
uint64_t fill(ModelDevice& device, uint64_t from, const std::function<Page(uint64_t)>& content) {
  for (uint64_t i = from; i < device.pages(); ++i) {
    const Status status = device.store_page(i, content(i));
    if (status == Status::kOk) continue;
    CHECK(status == Status::kNoSpace);
    return i - from;
  }
  return device.pages() - from;
}

// Pages of the corpus, each copy different, so of all sizes.
Page corpus_page(uint64_t seed) {
  Page page = test::corpus_pages()[seed % test::corpus_pages().size()];
  test::vary(page, seed);
  return page;
}

TEST_CASE("random pages are accepted up to the limit within 5 percent and then refused") {
  ModelDevice device(options_for("lz4", false, 16 * kMiB), 32 * kMiB / kPageBytes);
  const uint64_t stored = fill(device, 0, test::random_page);
  CHECK(stored * kPageBytes > 16 * kMiB * 95 / 100);
  CHECK(stored * kPageBytes <= 16 * kMiB);
  const PoolSnapshot snapshot = device.pool().snapshot();
  CHECK(snapshot.mem_used_max <= 16 * kMiB);
  CHECK(snapshot.limit_reached);
  CHECK(snapshot.headroom == 16 * kMiB - snapshot.mem_used_total);
  CHECK(device.all_right());
}

TEST_CASE("every refused request is counted once and nothing else of it is") {
  ModelDevice device(options_for("lz4", false, 4 * kMiB), 16 * kMiB / kPageBytes);
  const uint64_t stored = fill(device, 0, test::random_page);
  const std::vector<std::byte> many(100 * kPageBytes + 77, std::byte{3});
  std::vector<std::byte> raw;
  for (uint64_t i = 0; i < 100; ++i) {
    const Page page = test::random_page(i);
    raw.insert(raw.end(), page.begin(), page.end());
  }
  for (uint64_t i = 0; i < 20; ++i) {
    CHECK(device.store(stored * kPageBytes + i, raw) == Status::kNoSpace);
  }
  const TenantSnapshot counts = device.counts();
  CHECK(counts.pool_limit_hit == 21);
  CHECK(counts.reject_alloc_fail == 0);
  CHECK(counts.swpout[0] == stored);
  CHECK(counts.reject_compress_poor == stored);
  CHECK(counts.stored_pages == stored);
  // What needs no object is still accepted where the slot table has room.
  CHECK(device.store(8 * kPageBytes, many) == Status::kOk);
  CHECK(device.all_right());
}

TEST_CASE("after a refusal pages are accepted again once a quarter was discarded") {
  ModelDevice device(options_for("lz4", false, 16 * kMiB), 32 * kMiB / kPageBytes);
  const uint64_t stored = fill(device, 0, test::random_page);
  // Above the threshold of 90 percent nothing new is accepted, though there is room.
  device.discard(0, stored / 20 * kPageBytes);
  CHECK(device.store_page(0, test::random_page(1)) == Status::kNoSpace);
  CHECK(device.pool().snapshot().limit_reached);
  device.discard(0, stored / 4 * kPageBytes);
  for (uint64_t i = 0; i < stored * 3 / 16; ++i) {
    REQUIRE(device.store_page(i, test::random_page(i + 77)) == Status::kOk);
  }
  CHECK_FALSE(device.pool().snapshot().limit_reached);
  CHECK(device.all_right());
}

TEST_CASE("the limit's gauge falls as soon as enough was discarded") {
  ModelDevice device(options_for("lz4", false, 4 * kMiB), 16 * kMiB / kPageBytes);
  (void)fill(device, 0, test::random_page);
  CHECK(device.pool().snapshot().limit_reached);
  device.discard(0, device.pages() * kPageBytes);
  CHECK_FALSE(device.pool().snapshot().limit_reached);
}

TEST_CASE("a request over untouched slot clusters that fails gives their table pages back") {
  if (!test::test_switches().batch) return;  // what it stored before it failed keeps some
  ModelDevice device(options_for("lz4", false, 4 * kMiB), 64 * kSlotClusterSlots);
  (void)fill(device, 0, test::random_page);
  device.discard(0, device.pages() / 2 * kPageBytes);
  REQUIRE(device.store_page(0, test::random_page(1)) == Status::kOk);
  const uint64_t used = device.pool().snapshot().mem_used_total;
  std::vector<std::byte> data;
  for (uint64_t i = 0; i < 3 * kSlotClusterSlots; ++i) {
    const Page page = test::random_page(i);
    data.insert(data.end(), page.begin(), page.end());
  }
  CHECK(device.store((10 * kSlotClusterSlots + 5) * kPageBytes, data) == Status::kNoSpace);
  CHECK(device.gauges() == device.expected());
  const PoolSnapshot after = device.pool().snapshot();
  CHECK(after.metadata_size - device.tenant().slots().resident_bytes() < 64 * 1024);
  CHECK(device.tenant().slots().next_touched(1, 64) == 64);
  CHECK(after.mem_used_total < used + 3 * kMiB);
  CHECK(device.all_right());
}

TEST_CASE("at the limit pages may be overwritten for ever, one by one and many at once") {
  for (const std::string& codec : test::codecs_to_try({"lz4", "zstd"})) {
    for (const bool checksum : {false, true}) {
      CAPTURE(codec);
      CAPTURE(checksum);
      ModelDevice device(options_for(codec, checksum, 4 * kMiB), 16 * kMiB / kPageBytes);
      const uint64_t stored = fill(device, 0, test::random_page);
      uint64_t generation = 0;
      for (int round = 0; round < 3; ++round) {
        for (uint64_t i = 0; i < stored; ++i) {
          REQUIRE(device.store_page(i, test::random_page(++generation)) == Status::kOk);
        }
        for (uint64_t i = 0; i + 64 < stored; i += 64) {
          std::vector<Page> pages;
          for (int n = 0; n < 64; ++n) pages.push_back(test::random_page(++generation));
          REQUIRE(device.store(i * kPageBytes, std::as_bytes(std::span(pages))) == Status::kOk);
          const std::array<std::byte, 1000> part{};
          REQUIRE(device.store(i * kPageBytes + 4000, part) == Status::kOk);
        }
      }
      // A page or two for an object that has moved; not what 64 pages needed at once.
      CHECK(device.pool().snapshot().mem_used_total <= 4 * kMiB + 4 * kPageBytes);
      CHECK(device.all_right());
    }
  }
}

TEST_CASE("when no page can grow any more none is refused its like") {
  if (test::kUnderTsan) return;  // long, and of one thread
  for (const uint64_t limit : {kMiB, 4 * kMiB, 32 * kMiB, 64 * kMiB}) {
    for (const bool checksum : {false, true}) {
      if (checksum && !test::switch_parameters().empty()) continue;  // for time
      CAPTURE(checksum);
      CAPTURE(limit);
      ModelDevice device(options_for("lz4", checksum, limit), 3 * limit / kPageBytes);
      const uint64_t stored = fill(device, 0, corpus_page);
      Random random(1);
      for (int refused = 0; refused < 200;) {
        const uint64_t i = random.below(stored);
        refused += device.store_page(i, test::random_page(random())) != Status::kOk;
      }
      for (int i = 0; i < 5'000; ++i) {
        const uint64_t index = random.below(stored);
        const auto now = device.page(index);
        Page same;
        std::copy(now.begin(), now.end(), same.begin());
        REQUIRE(device.store_page(index, same) == Status::kOk);
      }
      // Two pages for each size class at most, which the reserve of a larger limit covers.
      const uint64_t beyond = limit >= 64 * kMiB ? 4 * kPageBytes : 2 * kMiB;
      const uint64_t used = device.pool().snapshot().mem_used_total;
      MESSAGE("limit ", limit >> 10, " KiB, used ", used >> 10, " KiB");
      CHECK(used <= limit + beyond);
      CHECK(device.all_right());
    }
  }
}

TEST_CASE("a pool that was used sparsely and emptied accepts pages again") {
  if (test::kUnderTsan) return;  // no address space for it
  constexpr uint64_t kStepPages = 128 * kMiB / kPageBytes;
  Pool pool(options_for("lz4", false, kMinMemLimitBytes), 4096 * kMiB);
  Tenant& tenant = pool.add_tenant("", 4096 * kMiB);
  const Page page = test::random_page(1);
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 0; i < 32; ++i) {
      const uint64_t offset = i * kStepPages * kPageBytes;
      REQUIRE(pool.store(tenant, offset, page) == Status::kOk);
      pool.discard(tenant, offset, kPageBytes);
    }
  }
}

TEST_CASE("a pool that was emptied accepts pages again, however low the threshold") {
  for (const uint32_t percent : {1u, 6u}) {
    PoolOptions options = options_for("lz4", false, kMinMemLimitBytes);
    options.accept_threshold_percent = percent;
    ModelDevice device(options, 64);
    REQUIRE(fill(device, 0, test::random_page) < 64);
    device.discard(0, device.pages() * kPageBytes);
    CHECK(device.store_page(1, test::random_page(1)) == Status::kOk);
  }
}

TEST_CASE("table pages that a discard has left make way for a page that is written in part") {
  if (test::test_switches().free == FreeMode::kSync) return;  // it leaves none
  constexpr uint64_t kClusters = 232;
  // The thread that would give them back soon is held up meanwhile.
  std::latch held(1);
  PoolOptions options = options_for("lz4", false, kMiB);
  options.on_thread_start = [&held] { held.wait(); };
  ModelDevice device(options, (kClusters + 2) * kSlotClusterSlots);
  struct Release {
    std::latch& held;
    ~Release() { held.count_down(); }
  } const release{held};
  const Page same = page_of(PageKind::kSame, 1);
  for (uint64_t i = 1; i <= kClusters; ++i) {
    REQUIRE(device.store_page(i * kSlotClusterSlots, same) == Status::kOk);
  }
  device.discard(2 * kSlotClusterSlots * kPageBytes, kClusters * kSlotClusterSlots * kPageBytes);
  // Nearly as much as the limit leaves to new pages while those of the table are still there.
  const uint64_t pages = (device.pool().snapshot().headroom - kMiB / 32) / kPageBytes;
  for (uint64_t i = 1; i < pages; ++i) {
    REQUIRE(device.store_page(kSlotClusterSlots + i, test::random_page(i)) == Status::kOk);
  }
  for (uint64_t i = 0; i < 16; ++i) {
    const Page page = test::random_page(1000 + i);
    const uint64_t offset = (kSlotClusterSlots + 400 + 2 * i) * kPageBytes + 512;
    REQUIRE(device.store(offset, std::as_bytes(std::span(page)).first(2048)) == Status::kOk);
  }
  CHECK(device.matches());
}

TEST_CASE("pages kept for objects to come give way to a page elsewhere") {
  constexpr uint64_t kClusters = 100;
  ModelDevice device(options_for("lz4", false, 2 * kMiB), kClusters * kSlotClusterSlots);
  const uint64_t stored = fill(device, 0, test::random_page);
  REQUIRE(stored < kSlotClusterSlots);
  for (uint64_t i = 0; i < stored; ++i) {
    REQUIRE(device.store_page(i, test::stamped_page(i, 1)) == Status::kOk);
  }
  REQUIRE(device.pool().snapshot().mem_used_total > 2 * kMiB - 128 * 1024);
  // Each takes a page of the slot table and no object.
  const Page same = page_of(PageKind::kSame, 1);
  for (uint64_t i = 1; i < kClusters; ++i) {
    REQUIRE(device.store_page(i * kSlotClusterSlots, same) == Status::kOk);
  }
  CHECK(device.all_right());
}

TEST_CASE("the pool stays within the limit and right under random requests that often fail") {
  Random random(test::test_seed());
  for (const std::string& codec : test::codecs_to_try({"lz4", "zstd"})) {
    for (const uint64_t limit : {kMinMemLimitBytes, kMiB}) {
      CAPTURE(codec);
      CAPTURE(limit);
      ModelDevice device(options_for(codec, true, limit), 3 * kSlotClusterSlots);
      const uint64_t bytes = device.pages() * kPageBytes;
      int refused = 0;
      for (int i = 0; i < 2000; ++i) {
        const uint64_t offset = random.below(bytes);
        const uint64_t length = std::min(bytes - offset, random.below(6 * kPageBytes));
        std::vector<std::byte> data;
        while (data.size() < length) {
          const Page page = random.below(3) == 0
                                ? page_of(static_cast<PageKind>(1 + random.below(5)), random())
                                : corpus_page(random());
          data.insert(data.end(), page.begin(), page.end());
        }
        data.resize(length);
        Status status = Status::kOk;
        switch (random.below(8)) {
          case 0:
            device.discard(offset, length * 4 < bytes - offset ? length * 4 : length);
            break;
          case 1:
            status = device.zero(offset, length);
            break;
          default:
            status = device.store(offset, data);
        }
        REQUIRE((status == Status::kOk || status == Status::kNoSpace));
        refused += status != Status::kOk;
        REQUIRE(device.matches(offset, length));
      }
      CHECK(refused > 0);
      CHECK(device.counts().pool_limit_hit == static_cast<uint64_t>(refused));
      CHECK(device.all_right());
      device.discard(0, bytes);
      CHECK(device.gauges() == test::Gauges{});
    }
  }
}

}  // namespace
}  // namespace cswap
