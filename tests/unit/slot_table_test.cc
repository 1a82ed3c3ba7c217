#include "core/slot_table.h"

#include <doctest/doctest.h>

#include "core/options.h"
#include "tests/support/corpus.h"
#include "tests/support/resident.h"

namespace cswap {
namespace {

constexpr SlotWord word_of(uint64_t fill) { return *SlotWord::same(fill); }

struct Table {
  explicit Table(uint64_t pages, uint64_t limit = 0) : budget(limit, 90), slots(pages, budget) {}

  SlotWord set(PageIndex page, SlotWord word) {
    const SlotTable::Index index = SlotTable::cluster_of(page);
    SlotCluster& cluster = slots.cluster(index);
    const Guard guard(cluster.lock);
    const SlotWord old = slots.exchange(cluster, page, word);
    slots.settle(cluster, index);
    return old;
  }
  SlotWord get(PageIndex page) {
    SlotCluster& cluster = slots.cluster(SlotTable::cluster_of(page));
    const Guard guard(cluster.lock);
    return slots.get(cluster, page);
  }

  MemoryBudget budget;
  SlotTable slots;
};

TEST_CASE("words come back as they were set and exchange gives the one before") {
  Table table(kSlotClusterSlots * 3 - 7);
  const std::array<uint64_t, 5> pages = {0, 1, kSlotClusterSlots - 1, kSlotClusterSlots,
                                         kSlotClusterSlots * 3 - 8};
  for (const uint64_t page : pages) {
    REQUIRE(table.slots.reserve(SlotTable::cluster_of({page})));
    CHECK(table.set({page}, word_of(page + 1)).is_empty());
  }
  for (const uint64_t page : pages) {
    CHECK(table.slots.peek({page}) == word_of(page + 1));
    CHECK(table.get({page}) == word_of(page + 1));
    CHECK(table.set({page}, word_of(page + 2)) == word_of(page + 1));
  }
  CHECK(table.slots.peek({2}).is_empty());
  table.slots.check_invariants();
}

TEST_CASE("a slot cluster is charged once, while it holds anything") {
  Table table(kSlotClusterSlots * 128);
  CHECK(table.budget.used_bytes() == 0);
  REQUIRE(table.slots.reserve(3));
  const uint64_t one = table.budget.used_bytes();
  CHECK(one == 2 * kPageBytes);  // a page of table and a page of descriptors
  REQUIRE(table.slots.reserve(3));
  CHECK(table.budget.used_bytes() == one);
  (void)table.set(SlotTable::first_page_of(3), word_of(1));
  CHECK(table.budget.used_bytes() == one);
  REQUIRE(table.slots.reserve(4));
  CHECK(table.budget.used_bytes() == one + kPageBytes);
  CHECK(table.slots.resident_bytes() == table.budget.used_bytes());
  // The last word gone, the page of table is given back; descriptors stay.
  CHECK(table.set(SlotTable::first_page_of(3), SlotWord()) == word_of(1));
  CHECK_FALSE(table.slots.is_touched(3));
  CHECK(table.slots.is_touched(4));
  CHECK(table.budget.used_bytes() == one);
}

TEST_CASE("a reservation that nobody filled is given back") {
  Table table(kSlotClusterSlots * 2);
  REQUIRE(table.slots.reserve(1));
  CHECK(table.slots.is_touched(1));
  {
    SlotCluster& cluster = table.slots.cluster(1);
    const Guard guard(cluster.lock);
    table.slots.settle(cluster, 1);
  }
  CHECK_FALSE(table.slots.is_touched(1));
  CHECK(table.budget.used_bytes() == kPageBytes);
}

TEST_CASE("a word set after another request settled the reservation is charged") {
  Table table(kSlotClusterSlots * 2);
  REQUIRE(table.slots.reserve(0));
  SlotCluster& cluster = table.slots.cluster(0);
  {
    const Guard guard(cluster.lock);
    table.slots.settle(cluster, 0);
    CHECK(table.budget.used_bytes() == kPageBytes);
    (void)table.slots.exchange(cluster, {5}, word_of(9));
    table.slots.settle(cluster, 0);
  }
  CHECK(table.slots.is_touched(0));
  CHECK(table.budget.used_bytes() == 2 * kPageBytes);
  CHECK(table.slots.peek({5}) == word_of(9));
  table.slots.check_invariants();
}

TEST_CASE("emptying words of a slot cluster that holds nothing makes no memory resident") {
  if (test::kUnderSanitizer) return;  // what they keep for each page touched is resident too
  constexpr uint64_t kClusters = 2048;
  Table table(kSlotClusterSlots * kClusters);
  for (SlotTable::Index index = 0; index < kClusters; ++index) {
    REQUIRE(table.slots.reserve(index));
    SlotCluster& cluster = table.slots.cluster(index);
    const Guard guard(cluster.lock);
    table.slots.settle(cluster, index);
  }
  const uint64_t before = test::own_resident_bytes();
  for (SlotTable::Index index = 0; index < kClusters; ++index) {
    (void)table.set(SlotTable::first_page_of(index), SlotWord());
  }
  CHECK(test::own_resident_bytes() < before + kClusters * kPageBytes / 2);
}

TEST_CASE("a limit that is reached refuses a reservation and charges nothing") {
  Table table(kSlotClusterSlots * 1024, kMinMemLimitBytes);
  SlotTable::Index reserved = 0;
  while (table.slots.reserve(reserved)) ++reserved;
  CHECK(reserved > 4);
  const uint64_t used = table.budget.used_bytes();
  CHECK(used <= kMinMemLimitBytes);
  CHECK_FALSE(table.slots.reserve(reserved + 100));
  CHECK(table.budget.used_bytes() == used);
  CHECK_FALSE(table.slots.is_touched(reserved + 100));
  CHECK(table.slots.reserve(0));  // touched already
}

TEST_CASE("next_touched finds each touched slot cluster in order and nothing else") {
  constexpr uint64_t kClusters = 64 * 5 + 3;
  Table table(kSlotClusterSlots * kClusters);
  const std::vector<SlotTable::Index> touched = {0, 1, 63, 64, 127, 200, 319, kClusters - 1};
  for (const SlotTable::Index index : touched) REQUIRE(table.slots.reserve(index));
  std::vector<SlotTable::Index> found;
  for (auto index = table.slots.next_touched(0, kClusters); index < kClusters;
       index = table.slots.next_touched(index + 1, kClusters)) {
    found.push_back(index);
  }
  CHECK(found == touched);
  for (SlotTable::Index from = 0; from <= kClusters; ++from) {
    for (const SlotTable::Index end : {from, from + 1, from + 64, kClusters}) {
      if (end > kClusters) continue;
      const auto next = std::lower_bound(touched.begin(), touched.end(), from);
      const SlotTable::Index expected = next == touched.end() ? end : std::min(*next, end);
      REQUIRE(table.slots.next_touched(from, end) == expected);
    }
  }
}

TEST_CASE("the table of a 16 TiB device costs memory only where something is stored") {
  if (test::kHasSmallAddressSpace) return;
  const uint64_t before = test::own_resident_bytes();
  constexpr uint64_t kPages = kMaxDeviceBytes / kPageBytes;
  Table table(kPages);
  const SlotTable::Index end = SlotTable::cluster_of({kPages - 1}) + 1;
  CHECK(table.slots.next_touched(0, end) == end);
  CHECK(table.slots.peek({kPages - 1}).is_empty());
  REQUIRE(table.slots.reserve(end - 1));
  (void)table.set({kPages - 1}, word_of(7));
  CHECK(table.slots.next_touched(0, end) == end - 1);
  CHECK(table.slots.peek({kPages - 1}) == word_of(7));
  CHECK(table.budget.used_bytes() == 2 * kPageBytes);
  table.slots.check_invariants();
  CHECK(test::own_resident_bytes() < before + (4 << 20));
}

}  // namespace
}  // namespace cswap
