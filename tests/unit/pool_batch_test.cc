// A store of many pages that fails at any one of them. With batch=on it changes nothing: content,
// gauges and memory are what they were. With batch=off the pages before it are stored and the
// others are as they were. The device's model knows which, see model_device.h.
#include <doctest/doctest.h>

#include "tests/support/model_device.h"
#include "tests/support/resident.h"

namespace cswap {
namespace {

using test::Gauges;
using test::ModelDevice;
using test::options_for;
using test::Page;
using test::PageKind;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kRequestPages = 512;

// Every position with two rows of the switches that differ in all, else some.
uint64_t step() {
  if (test::kUnderSanitizer) return 37;
  return test::test_switches().alloc == AllocMode::kGlobal ? 7 : 1;
}

// Its object is small, and as large in every generation.
Page small_page(uint64_t index, uint64_t generation) {
  Page page{};
  const Page random = test::random_page(index << 8 | generation);
  std::copy_n(random.begin(), 60, page.begin() + 100);
  return page;
}

Page filled_with(std::byte byte) {
  Page page;
  page.fill(byte);
  return page;
}

Gauges expected_after(bool batch, const Gauges& before, ModelDevice& device) {
  return batch ? before : device.expected();
}

// A pool that takes no object any more which replaces none: its limit is met and its third slot
// cluster is full of random pages. The request goes to the first two.
class FullDevice {
 public:
  explicit FullDevice(PageKind before, bool checksum = false)
      : before_(before),
        device_(options_for("lz4", checksum, kLimit), kFilled + kLimit / kPageBytes),
        batch_(device_.pool().options().batch) {
    // Both slot clusters stay in use.
    REQUIRE(device_.store_page(0, filled_with(std::byte{9})) == Status::kOk);
    REQUIRE(device_.store_page(kFilled - 1, filled_with(std::byte{9})) == Status::kOk);
    for (uint64_t i = kFirst - 1; i <= kFirst + kRequestPages + 1; ++i) restore(i);
    uint64_t i = kFilled;
    while (device_.store_page(i, test::random_page(i)) == Status::kOk) ++i;
    REQUIRE(i > kFilled + 8);
    refused_ = 1;
  }

  // The page at position `k` of the request needs room and does not get it; those before it need
  // none. `shift` is where in its page the request begins.
  void fail_at(uint64_t k, uint64_t shift) {
    CAPTURE(k);
    const std::vector<std::byte> data = request(k, shift);
    const Gauges gauges = device_.gauges();
    const PoolSnapshot before = device_.pool().snapshot();
    const Status status = device_.store(kFirst * kPageBytes + shift, data);
    REQUIRE(status == Status::kNoSpace);
    REQUIRE(device_.gauges() == expected_after(batch_, gauges, device_));
    REQUIRE(device_.matches());
    device_.pool().check_invariants(2);
    const PoolSnapshot after = device_.pool().snapshot();
    REQUIRE(after.tenants[0].pool_limit_hit == ++refused_);
    check_swpout(before.tenants[0], after.tenants[0], batch_ ? 0 : k);
    REQUIRE(after.mem_used_total <= std::max(before.mem_used_total, kLimit));
    check_prefix(k);
    if (batch_) return;
    const uint64_t stored = device_.stored_prefix();
    for (uint64_t i = 0; i < stored; ++i) restore(kFirst + i);
    REQUIRE(device_.gauges() == gauges);
  }

  // Nothing of all the requests that failed is left.
  void empty() {
    device_.discard(0, device_.pages() * kPageBytes);
    device_.pool().check_invariants(2);
    const PoolSnapshot after = device_.pool().snapshot();
    CHECK(after.pool_total_size == 0);
    CHECK(device_.gauges() == Gauges{});
    CHECK(device_.store_page(7, test::random_page(7)) == Status::kOk);
    CHECK(device_.all_right());
  }

 private:
  // So many pages were stored by themselves, and none otherwise.
  static void check_swpout(const TenantSnapshot& before, const TenantSnapshot& after, uint64_t k) {
    uint64_t fallback = 0;
    for (uint32_t order = 0; order < kOrders; ++order) {
      REQUIRE(after.swpout[order] == before.swpout[order] + (order == 0 ? k : 0));
      fallback += (after.swpout_fallback[order] - before.swpout_fallback[order]) << order;
    }
    REQUIRE(fallback == (k & ~uint64_t{1}));
  }

  static constexpr uint64_t kLimit = kMiB / 4;
  static constexpr uint64_t kFirst = 7;  // so that the request is in two slot clusters
  static constexpr uint64_t kFilled = 2 * kSlotClusterSlots;

  void restore(uint64_t index) {
    Page page = filled_with(std::byte{1});
    if (before_ == PageKind::kCompressed) page = small_page(index, 1);
    if (before_ == PageKind::kAbsent) {
      device_.discard(index * kPageBytes, kPageBytes);
    } else {
      REQUIRE(device_.store_page(index, page) == Status::kOk);
    }
  }

  // Content for a page before position k: not what was there, but in a page that is written in
  // part, where nothing else would be kept without an object.
  [[nodiscard]] Page fitting(uint64_t index, bool in_part) const {
    switch (before_) {
      case PageKind::kAbsent:
        return {};
      case PageKind::kCompressed:
        return small_page(index, 2);
      default:
        return filled_with(std::byte(in_part ? 1 : 3));
    }
  }

  [[nodiscard]] std::vector<std::byte> request(uint64_t k, uint64_t shift) const {
    std::vector<std::byte> data;
    for (uint64_t i = 0; i <= kRequestPages; ++i) {
      const bool in_part = shift > 0 && (i == 0 || i == kRequestPages);
      const Page page = i < k ? fitting(kFirst + i, in_part) : test::random_page(kFirst + i);
      data.insert(data.end(), page.begin(), page.end());
    }
    const auto first = data.begin() + static_cast<ptrdiff_t>(shift);
    return {first, first + static_cast<ptrdiff_t>(kRequestPages * kPageBytes)};
  }

  void check_prefix(uint64_t k) {
    if (batch_) {
      REQUIRE(device_.stored_prefix() == 0);
    } else if (before_ == PageKind::kAbsent) {
      REQUIRE(device_.stored_prefix() == k);
    } else {
      // A page in part may be what it was.
      REQUIRE(device_.stored_prefix() >= k - (k == 1));
      REQUIRE(device_.stored_prefix() <= k);
    }
  }

  const PageKind before_;
  ModelDevice device_;
  const bool batch_;
  uint64_t refused_ = 0;
};

void fail_everywhere(PageKind before, uint64_t shift, bool checksum = false) {
  FullDevice device(before, checksum);
  uint64_t positions = shift > 0 ? kRequestPages + 1 : kRequestPages;
  // What the request replaces is credited to it: a page or two may grow after all.
  if (before == PageKind::kCompressed) positions -= 8;
  for (uint64_t k = 0; k < positions; k += step()) device.fail_at(k, shift);
  device.fail_at(positions - 1, shift);
  device.empty();
}

TEST_CASE("a request that is refused at any of its pages leaves absent pages absent") {
  fail_everywhere(PageKind::kAbsent, 0);
  fail_everywhere(PageKind::kAbsent, 777);
}

TEST_CASE("a request that is refused at any of its pages leaves same-filled pages as they were") {
  fail_everywhere(PageKind::kSame, 0);
  fail_everywhere(PageKind::kSame, 777);
}

TEST_CASE("a request that is refused at any of its pages leaves compressed pages as they were") {
  fail_everywhere(PageKind::kCompressed, 0);
  fail_everywhere(PageKind::kCompressed, 777, true);
}

// All pages of the request need an object, and the limit has room for fewer of them, or for all.
void fail_for_room(PageKind before, uint64_t shift, uint64_t step_pages) {
  step_pages *= step();
  std::vector<Page> pages;
  for (uint64_t i = 0; i < kRequestPages; ++i) pages.push_back(test::random_page(i + 1000));
  const auto data = std::as_bytes(std::span(pages));
  uint64_t refused = 0;
  uint64_t accepted = 0;
  constexpr uint64_t kMostRoom = kRequestPages + 32;
  for (uint64_t i = 0; i <= kMostRoom / step_pages + 1; ++i) {
    const uint64_t room = std::min(i * step_pages, kMostRoom);
    CAPTURE(room);
    // For so many raw pages beside what is there before and a reserve of 1/32.
    const uint64_t base = before == PageKind::kCompressed ? 160 : 8;
    const uint64_t limit = (base + room) * kPageBytes * 32 / 31 + kMiB / 8;
    ModelDevice device(options_for("lz4", false, limit), kRequestPages + 4);
    for (uint64_t page = 0; page < device.pages(); ++page) {
      REQUIRE(device.make(page, before, page) == Status::kOk);
    }
    const Gauges gauges_before = device.gauges();
    const Status status = device.store(kPageBytes + shift, data);
    status == Status::kOk ? ++accepted : ++refused;
    REQUIRE((status == Status::kOk || status == Status::kNoSpace));
    const bool unchanged = status != Status::kOk && device.pool().options().batch;
    REQUIRE(device.gauges() == (unchanged ? gauges_before : device.expected()));
    REQUIRE(device.matches());
    device.pool().check_invariants(2);
    REQUIRE(device.counts().reject_compress_poor == device.gauges().huge_pages);
    REQUIRE(device.counts().pool_limit_hit == uint64_t{status != Status::kOk});
    // The pool is as usable as before.
    device.discard(0, device.pages() * kPageBytes);
    REQUIRE(device.store_page(7, test::random_page(7)) == Status::kOk);
    REQUIRE(device.gauges() == device.expected());
  }
  CHECK(refused > kRequestPages / 2 / step_pages);
  CHECK(accepted > 0);
}

TEST_CASE("a request of objects that has no room at any of its pages leaves others as they were") {
  fail_for_room(PageKind::kAbsent, 0, 3);
  fail_for_room(PageKind::kCompressed, 0, 7);
  fail_for_room(PageKind::kCompressed, 777, 3);
}

// Without a limit, so that each byte of what was taken is accounted for.
class DamagedDevice {
 public:
  explicit DamagedDevice(uint64_t damaged)
      : device_(options_for("lz4", true), 2 * kRequestPages + 2), damaged_(damaged) {
    for (uint64_t i = 0; i < device_.pages(); ++i) {
      REQUIRE(device_.store_page(i, test::stamped_page(i, 1)) == Status::kOk);
    }
    for (uint64_t i = 0; i < kRequestPages; ++i) content_.push_back(test::stamped_page(i, 3));
    for (uint64_t i = 0; i < kRequestPages; i += 3) content_[i] = test::random_page(i);
    for (uint64_t i = 0; i < kRequestPages; i += 5) content_[i] = filled_with(std::byte{3});
  }

  // The request goes to `pages` pages; the first, or the last of them is damaged and to be written
  // in part. `prefix` pages come before the damaged one.
  void fail(uint64_t first, uint64_t pages, uint64_t prefix) {
    CAPTURE(first);
    CAPTURE(pages);
    const bool at_end = first != damaged_;
    const uint64_t offset = first * kPageBytes + (at_end ? 0 : 100);
    const uint64_t end = (first + pages) * kPageBytes - (at_end ? 100 : 0);
    const Gauges gauges = device_.gauges();
    const auto object = device_.pool().object_bytes_for_test(device_.tenant(), {damaged_});
    object[0] ^= std::byte{1};
    const auto data = std::as_bytes(std::span(content_)).subspan(100, end - offset);
    REQUIRE(device_.store(offset, data) == Status::kDamaged);
    const auto again = device_.pool().object_bytes_for_test(device_.tenant(), {damaged_});
    REQUIRE(again.data() == object.data());
    object[0] ^= std::byte{1};
    const bool batch = device_.pool().options().batch;
    REQUIRE(device_.stored_prefix() == (batch ? 0 : prefix));
    REQUIRE(device_.gauges() == expected_after(batch, gauges, device_));
    REQUIRE(device_.matches());
    device_.pool().check_invariants(2);
    REQUIRE(device_.counts().decompress_fail == ++failures_);
    REQUIRE(device_.counts().pool_limit_hit == 0);
  }

 private:
  ModelDevice device_;
  const uint64_t damaged_;
  std::vector<Page> content_;
  uint64_t failures_ = 0;
};

TEST_CASE("a request whose last page is damaged and written in part leaves pages as they were") {
  constexpr uint64_t kDamaged = kRequestPages + 3;
  DamagedDevice device(kDamaged);
  for (uint64_t pages = 1; pages < kRequestPages; pages += step()) {
    device.fail(kDamaged + 1 - pages, pages, pages - 1);
  }
}

TEST_CASE("a request whose first page is damaged and written in part leaves pages as they were") {
  constexpr uint64_t kDamaged = kRequestPages - 7;
  DamagedDevice device(kDamaged);
  for (uint64_t pages = 2; pages < kRequestPages; pages += step()) device.fail(kDamaged, pages, 0);
}

TEST_CASE("a request that gets no page of the slot table leaves the pages before as they were") {
  constexpr uint64_t kLimit = kMiB / 2;
  ModelDevice device(options_for("lz4", false, kLimit), 4 * kSlotClusterSlots);
  const bool batch = device.pool().options().batch;
  // Slot cluster 0 fills the pool, 1 is in use, 2 is not and can not come into use.
  REQUIRE(device.store_page(kSlotClusterSlots, filled_with(std::byte{1})) == Status::kOk);
  for (uint64_t i = 0; device.store_page(i, test::random_page(i)) == Status::kOk; ++i) {
    REQUIRE(i < kSlotClusterSlots - 1);
  }
  const PoolSnapshot full = device.pool().snapshot();
  uint64_t refused = 1;
  const std::vector<std::byte> data(kRequestPages * kPageBytes, std::byte{2});
  for (uint64_t k = 1; k < kRequestPages; k += step()) {
    CAPTURE(k);
    const uint64_t first = 2 * kSlotClusterSlots - k;
    const Gauges gauges = device.gauges();
    // A page that is written in part would need an object, but for same-filled pages of that byte.
    REQUIRE(device.store(first * kPageBytes, data) == Status::kNoSpace);
    REQUIRE(device.stored_prefix() == (batch ? 0 : k));
    REQUIRE(device.gauges() == expected_after(batch, gauges, device));
    REQUIRE(device.matches());
    device.pool().check_invariants(2);
    REQUIRE(device.tenant().slots().next_touched(2, 4) == 4);
    const PoolSnapshot now = device.pool().snapshot();
    REQUIRE(now.metadata_size == full.metadata_size);
    REQUIRE(now.mem_used_total == full.mem_used_total);
    REQUIRE(now.tenants[0].pool_limit_hit == ++refused);
    device.discard(first * kPageBytes, k * kPageBytes);
    // What keeps the slot cluster in use.
    REQUIRE(device.store_page(kSlotClusterSlots, filled_with(std::byte{1})) == Status::kOk);
  }
  CHECK(device.all_right());
}

TEST_CASE("a request counts in its order, or as that order's fallback when stored page by page") {
  const auto orders = [](uint32_t order, uint64_t count) {
    std::array<uint64_t, kOrders> result{};
    result[order] = count;
    return result;
  };
  for (uint32_t order = 1; order < kOrders; ++order) {
    CAPTURE(order);
    ModelDevice device(options_for("lz4"), 1024);
    const bool batch = device.pool().options().batch;
    const std::vector<std::byte> data(kPageBytes << order, std::byte{1});
    REQUIRE(device.store(kPageBytes, data) == Status::kOk);
    CHECK(device.counts().swpout == (batch ? orders(order, 1) : orders(0, 1u << order)));
    CHECK(device.counts().swpout_fallback == (batch ? orders(0, 0) : orders(order, 1)));
    REQUIRE(device.matches(kPageBytes, data.size()));
    CHECK(device.counts().swpin == orders(order, 1));
    CHECK(device.counts().latency[0][order].count == 1);
  }
  ModelDevice device(options_for("lz4"), 16);
  REQUIRE(device.store_page(0, filled_with(std::byte{1})) == Status::kOk);
  CHECK(device.counts().swpout == orders(0, 1));
  CHECK(device.counts().swpout_fallback == orders(0, 0));
  const std::vector<std::byte> three(3 * kPageBytes, std::byte{1});
  REQUIRE(device.store(0, three) == Status::kOk);
  if (device.pool().options().batch) {
    CHECK(device.counts().swpout == std::array<uint64_t, kOrders>{1 + 1, 1});
    CHECK(device.counts().swpout_fallback == orders(0, 0));
  } else {
    CHECK(device.counts().swpout == orders(0, 1 + 3));
    CHECK(device.counts().swpout_fallback == orders(1, 1));
  }
}

}  // namespace
}  // namespace cswap
