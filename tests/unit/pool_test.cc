// Store, load, zero, discard and extents of a pool without a limit, against plain bytes.
#include "core/pool.h"

#include <doctest/doctest.h>

#include "tests/support/model_device.h"
#include "tests/support/resident.h"

namespace cswap {
namespace {

using test::ModelDevice;
using test::options_for;
using test::Page;
using test::PageKind;
using test::Random;

// The interesting places inside three pages.
std::vector<uint64_t> places() {
  std::vector<uint64_t> all;
  for (uint64_t page = 0; page <= 3; ++page) {
    for (const int64_t delta : {-512, -1, 0, 1, 511, 2048}) {
      const auto at = static_cast<int64_t>(page * kPageBytes) + delta;
      if (at >= 0 && at <= int64_t{3} * kPageBytes) all.push_back(static_cast<uint64_t>(at));
    }
  }
  return all;
}

TEST_CASE("a request of any alignment inside three pages changes exactly its bytes") {
  for (const std::string& codec : test::codecs_to_try({"lz4", "zstd", "none"})) {
    ModelDevice device(options_for(codec), 5);
    uint64_t seed = 0;
    for (const uint64_t from : places()) {
      for (const uint64_t to : places()) {
        if (from > to) continue;
        CAPTURE(codec);
        CAPTURE(from);
        CAPTURE(to);
        const uint64_t offset = kPageBytes + from;  // a page before and one after as neighbours
        for (int operation = 0; operation < 3; ++operation) {
          for (uint64_t i = 0; i < 5; ++i) {
            ++seed;
            REQUIRE(device.make(i, static_cast<PageKind>(seed % test::kPageKinds), seed) ==
                    Status::kOk);
          }
          const auto data = test::bytes_of(
              std::array{test::random_page(seed), Page{}, test::stamped_page(seed, 1)});
          if (operation == 0) {
            REQUIRE(device.store(offset, std::span(data).first(to - from)) == Status::kOk);
          } else if (operation == 1) {
            REQUIRE(device.zero(offset, to - from) == Status::kOk);
          } else {
            device.discard(offset, to - from);
          }
          REQUIRE(device.matches());
          REQUIRE(device.matches(offset, to - from));
          if (to > from) REQUIRE(device.extents_match(offset, to - from));
        }
      }
    }
    CHECK(device.all_right());
  }
}

TEST_CASE("requests of no bytes do nothing anywhere, also at the end of the device") {
  ModelDevice device(options_for("lz4"), 3);
  REQUIRE(device.store_page(2, test::random_page(1)) == Status::kOk);
  for (const uint64_t at : {uint64_t{0}, uint64_t{77}, uint64_t{3} * kPageBytes}) {
    CHECK(device.store(at, {}) == Status::kOk);
    CHECK(device.zero(at, 0) == Status::kOk);
    device.discard(at, 0);
    CHECK(device.pool().load(device.tenant(), at, {}) == Status::kOk);
    device.pool().extents(device.tenant(), at, 0, [](uint64_t, uint64_t, bool) {
      FAIL("an extent of nothing");
      return false;
    });
  }
  CHECK(device.all_right());
}

TEST_CASE("random requests of every kind agree with plain bytes, whatever the switches") {
  const uint64_t seed = test::test_seed();
  for (const std::string& codec :
       test::codecs_to_try({"lz4", "lz4:17", "zstd", "zstd:-5", "none"})) {
    for (int switches = 0; switches < 4; ++switches) {
      CAPTURE(codec);
      CAPTURE(switches);
      PoolOptions options = options_for(codec, (switches & 1) != 0);
      options.same_filled = (switches & 2) != 0;
      // Three slot clusters, the last one short.
      ModelDevice device(options, 2 * kSlotClusterSlots + 100);
      Random random(seed);
      const uint64_t bytes = device.pages() * kPageBytes;
      std::vector<std::byte> data;
      for (int i = 0; i < 300; ++i) {
        uint64_t offset = random.below(bytes);
        uint64_t length = random.below(random.below(8) == 0 ? 64 * kPageBytes : 3 * kPageBytes);
        if (random.below(3) == 0) offset -= offset % kPageBytes;
        if (random.below(3) == 0) length -= length % kPageBytes;
        // Often near the border of two slot clusters.
        if (random.below(4) == 0) {
          offset = kSlotClusterSlots * kPageBytes - random.below(4 * kPageBytes);
        }
        length = std::min(length, bytes - offset);
        switch (random.below(6)) {
          case 0:
            REQUIRE(device.zero(offset, length) == Status::kOk);
            break;
          case 1:
            device.discard(offset, length);
            break;
          default: {
            data.clear();
            while (data.size() < length) {
              const uint64_t pick = random();
              const Page page =
                  pick % 3 == 0 ? test::corpus_pages()[random.below(test::corpus_pages().size())]
                                : page_of(static_cast<PageKind>(1 + pick % 5), random());
              data.insert(data.end(), page.begin(), page.end());
            }
            data.resize(length);
            REQUIRE(device.store(offset, data) == Status::kOk);
          }
        }
        REQUIRE(device.matches(offset, length));
      }
      CHECK(device.all_right());
      device.discard(0, bytes);
      CHECK(device.all_right());
      CHECK(device.gauges() == test::Gauges{});
      CHECK(device.pool().snapshot().pool_total_size == 0);
    }
  }
}

TEST_CASE("extents stop when the visitor has seen enough") {
  ModelDevice device(options_for("lz4"), 8);
  for (uint64_t i = 0; i < 8; i += 2) {
    REQUIRE(device.store_page(i, test::stamped_page(i, 1)) == Status::kOk);
  }
  int calls = 0;
  device.pool().extents(device.tenant(), 0, 8 * kPageBytes,
                        [&](uint64_t, uint64_t, bool) { return ++calls < 3; });
  CHECK(calls == 3);
}

TEST_CASE("the largest request works, aligned and shifted by 512 bytes") {
  constexpr uint64_t kRequestPages = kMaxRequestBytes / kPageBytes;
  ModelDevice device(options_for("lz4"), kRequestPages + 2);
  std::vector<Page> pages;
  for (uint64_t i = 0; i < kRequestPages; ++i) {
    pages.push_back(page_of(static_cast<PageKind>(1 + i % 5), i));
  }
  const auto data = std::as_bytes(std::span(pages));
  for (const uint64_t shift : {uint64_t{0}, uint64_t{512}}) {
    REQUIRE(device.store(shift, data) == Status::kOk);
    CHECK(device.matches());
  }
  CHECK(device.all_right());
}

TEST_CASE("a device of 16 TiB serves its last page and costs what is stored") {
  if (test::kHasSmallAddressSpace) return;
  const uint64_t before = test::own_resident_bytes();
  Pool pool(options_for("lz4", true), kMaxDeviceBytes);
  Tenant& tenant = pool.add_tenant("", kMaxDeviceBytes);
  const Page page = test::random_page(5);
  const uint64_t last = kMaxDeviceBytes - kPageBytes;
  REQUIRE(pool.store(tenant, last, page) == Status::kOk);
  REQUIRE(pool.store(tenant, last + 4095, std::span(page).first(1)) == Status::kOk);
  Page read;
  REQUIRE(pool.load(tenant, last, read) == Status::kOk);
  CHECK(std::equal(read.begin(), read.end() - 1, page.begin()));
  CHECK(read[4095] == page[0]);
  std::vector<uint64_t> extents;
  pool.extents(tenant, 0, kMaxDeviceBytes, [&](uint64_t offset, uint64_t, bool) {
    extents.push_back(offset);
    return true;
  });
  CHECK(extents.back() == last);
  // Zeroes over nothing cost nothing, aligned or not, all over the device.
  const uint64_t used = pool.snapshot().mem_used_total;
  const uint64_t resident = test::own_resident_bytes();
  for (uint64_t at = 0; at < kMaxDeviceBytes; at += uint64_t{1} << 30) {
    REQUIRE(pool.zero(tenant, at + 100, 512) == Status::kOk);
  }
  CHECK(pool.snapshot().mem_used_total == used);
  CHECK(test::own_resident_bytes() < resident + (8 << 20));
  REQUIRE(pool.zero(tenant, 0, kMaxDeviceBytes) == Status::kOk);
  pool.discard(tenant, 0, kMaxDeviceBytes);
  CHECK(pool.snapshot().tenants[0].stored_pages == 0);
  pool.check_invariants(2);
  CHECK(test::own_resident_bytes() < before + (24 << 20));
}

TEST_CASE("two tenants of one pool never see each other's pages or counts") {
  Pool pool(options_for("lz4"), 2000 * kPageBytes);
  Tenant& a = pool.add_tenant("a", 1000 * kPageBytes);
  Tenant& b = pool.add_tenant("b", 1000 * kPageBytes);
  for (uint64_t i = 0; i < 1000; ++i) {
    REQUIRE(pool.store(a, i * kPageBytes, test::stamped_page(i, 1)) == Status::kOk);
  }
  Page page;
  REQUIRE(pool.load(b, 0, page) == Status::kOk);
  CHECK(page == Page{});
  REQUIRE(pool.store(b, 0, test::stamped_page(0, 2)) == Status::kOk);
  pool.discard(b, 0, b.size_bytes());
  for (uint64_t i = 0; i < 1000; ++i) {
    REQUIRE(pool.load(a, i * kPageBytes, page) == Status::kOk);
    REQUIRE(page == test::stamped_page(i, 1));
  }
  const PoolSnapshot snapshot = pool.snapshot();
  CHECK(snapshot.tenants[0].stored_pages == 1000);
  CHECK(snapshot.tenants[1].stored_pages == 0);
  CHECK(snapshot.tenants[1].swpout[0] == 1);
  CHECK(snapshot.tenants[1].notify_free == 1);
  pool.check_invariants(2);
}

TEST_CASE("counters move by the pages of a request") {
  ModelDevice device(options_for("lz4"), 16);
  const std::vector<std::byte> data(3 * kPageBytes, std::byte{1});
  REQUIRE(device.store(0, data) == Status::kOk);
  REQUIRE(device.store(kPageBytes / 2, data) == Status::kOk);
  // 3 and 4 pages.
  CHECK(device.counts().swpout == (device.pool().options().batch
                                       ? std::array<uint64_t, kOrders>{1, 1, 1}
                                       : std::array<uint64_t, kOrders>{7}));
  CHECK(device.matches(5, 2 * kPageBytes));
  CHECK(device.counts().swpin == std::array<uint64_t, kOrders>{1, 1});
  // Of seven pages discarded four were stored.
  device.discard(0, 7 * kPageBytes);
  CHECK(device.counts().notify_free == 4);
  REQUIRE(device.store(0, test::random_page(1)) == Status::kOk);
  CHECK(device.counts().reject_compress_poor == 1);
  CHECK(sum_of(device.counts().latency[0]).count == 3);
  CHECK(sum_of(device.counts().latency[1]).count == 1);
  CHECK(sum_of(device.counts().latency[2]).count == 1);
}

}  // namespace
}  // namespace cswap
