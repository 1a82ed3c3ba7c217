#include "core/object_store.h"

#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "tests/support/corpus.h"
#include "tests/support/death.h"
#include "tests/support/resident.h"

namespace cswap {
namespace {

using For = MemoryBudget::For;
constexpr uint64_t kMiB = uint64_t{1} << 20;

// A store with one Worker's hints, that knows all its live objects and what they hold.
class Store {
 public:
  explicit Store(uint64_t arena_bytes = 64 * kMiB, uint64_t limit = 0)
      : budget(limit, 90), store(arena_bytes, budget) {}

  // False when refused.
  bool add(uint32_t bytes, For purpose = For::kNewPage) {
    ArenaOffset at;
    if (!store.allocate(hints_, bytes, purpose, &at)) return false;
    REQUIRE(at.value % kObjectAlignBytes == 0);
    const auto after = live_.lower_bound(at.value);
    if (after != live_.end()) REQUIRE(at.value + bytes <= after->first);
    if (after != live_.begin()) {
      const auto before = std::prev(after);
      REQUIRE(before->first + before->second.bytes <= at.value);
    }
    const auto fill = static_cast<unsigned char>(++generation_);
    std::memset(store.bytes(at), fill, bytes);
    live_[at.value] = {bytes, fill};
    order_.push_back(at);
    return true;
  }

  void check_content(uint64_t at) {
    const Object& object = live_.at(at);
    const auto* const bytes = reinterpret_cast<unsigned char*>(store.bytes({at}));
    REQUIRE(bytes[0] == object.fill);
    REQUIRE(std::memcmp(bytes, bytes + 1, object.bytes - 1) == 0);
    REQUIRE(store.holds({at}, object.bytes));
  }

  void remove(size_t i) {
    const ArenaOffset at = order_[i];
    check_content(at.value);
    live_.erase(at.value);
    order_[i] = order_.back();
    order_.pop_back();
    store.free({&at, 1});
  }

  // Frees all at once and gives back what the store would keep for the next objects.
  void remove_all() {
    for (const auto& [at, object] : live_) check_content(at);
    live_.clear();
    store.free(order_);
    order_.clear();
    store.release_unused_pages();
  }

  [[nodiscard]] size_t objects() const { return order_.size(); }
  [[nodiscard]] ArenaOffset object(size_t i) const { return order_[i]; }
  [[nodiscard]] uint64_t live_bytes() const {
    uint64_t sum = 0;
    for (const auto& [at, object] : live_) sum += class_bytes(size_class_of(object.bytes));
    return sum;
  }

  MemoryBudget budget;
  ObjectStore store;

 private:
  struct Object {
    uint32_t bytes;
    unsigned char fill;
  };
  ObjectStore::Hints hints_{};
  std::map<uint64_t, Object> live_;
  std::vector<ArenaOffset> order_;
  uint64_t generation_ = 0;
};

void check_counts(Store& store) {
  store.store.check_invariants(2);
  CHECK(store.store.live_bytes() == store.live_bytes());
  CHECK(store.budget.used_bytes() == store.store.resident_bytes() + store.store.metadata_bytes());
}

TEST_CASE("objects of every size live side by side, keep their bytes and give all memory back") {
  Store store(256 * kMiB);
  for (uint32_t bytes = 1; bytes <= kMaxObjectBytes; ++bytes) REQUIRE(store.add(bytes));
  check_counts(store);
  CHECK(store.store.resident_bytes() >= store.live_bytes());
  store.remove_all();
  check_counts(store);
  CHECK(store.store.live_bytes() == 0);
  CHECK(store.store.resident_bytes() == 0);
  CHECK(store.budget.used_bytes() == store.store.metadata_bytes());
}

TEST_CASE("each class fills whole clusters, every place once") {
  for (SizeClass c = 1; c < kSizeClasses; c += c < 8 ? 1 : 17) {
    Store store(16 * kMiB);
    const uint32_t objects = cluster_capacity(c) * 2 + 1;
    for (uint32_t i = 0; i < objects; ++i) REQUIRE(store.add(class_bytes(c)));
    check_counts(store);
    CHECK(store.store.metadata_bytes() % 3 == 0);  // three clusters were made, no more
    const uint64_t three = store.store.metadata_bytes();
    // Freed places are taken again before a cluster more is.
    for (uint32_t i = 0; i < objects / 2; ++i) store.remove(i);
    for (uint32_t i = 0; i < objects / 2; ++i) REQUIRE(store.add(class_bytes(c)));
    CHECK(store.store.metadata_bytes() == three);
    check_counts(store);
    store.remove_all();
    CHECK(store.store.resident_bytes() == 0);
  }
}

TEST_CASE("a random mix of allocations and frees never overlaps and never drifts") {
  test::Random random(test::test_seed());
  Store store(256 * kMiB);
  const int steps = test::kUnderSanitizer ? 20'000 : 100'000;
  for (int i = 0; i < steps; ++i) {
    // The pool swells and shrinks, so that clusters change their class.
    const uint64_t grow = i / 5000 % 2 == 0 ? 70 : 30;
    if (store.objects() == 0 || random.below(100) < grow) {
      const auto most = static_cast<uint32_t>(random.below(4) == 0 ? kMaxObjectBytes : 200);
      REQUIRE(store.add(1 + static_cast<uint32_t>(random.below(most))));
    } else {
      store.remove(random.below(store.objects()));
    }
    if (i % 5000 == 0) check_counts(store);
  }
  check_counts(store);
  store.remove_all();
  check_counts(store);
  CHECK(store.store.resident_bytes() == 0);
}

TEST_CASE("what is charged is what the kernel says is resident") {
  Store store(256 * kMiB);
  const std::span arena(store.store.bytes({0}), 256 * kMiB);
  for (int i = 0; i < 20'000; ++i) REQUIRE(store.add(500 + static_cast<uint32_t>(i % 3000)));
  CHECK(store.store.resident_bytes() == test::resident_bytes(arena));
  for (size_t i = store.objects(); i > 0; i -= std::min<size_t>(i, 3)) store.remove(i - 1);
  check_counts(store);
  CHECK(store.store.resident_bytes() == test::resident_bytes(arena));
  store.remove_all();
  CHECK(test::resident_bytes(arena) == 0);
}

TEST_CASE("pages without objects are given back from a cluster that holds others") {
  Store store;
  for (uint32_t i = 0; i < 64; ++i) REQUIRE(store.add(kPageBytes));
  for (int i = 0; i < 9; ++i) store.remove(0);
  check_counts(store);
  store.store.release_unused_pages();
  CHECK(store.store.resident_bytes() == 55 * kPageBytes);
  check_counts(store);
  // Released pages serve again, and hold what is written.
  for (int i = 0; i < 9; ++i) REQUIRE(store.add(kPageBytes));
  CHECK(store.store.resident_bytes() == 64 * kPageBytes);
  check_counts(store);
  store.remove_all();
  CHECK(store.store.resident_bytes() == 0);
}

TEST_CASE("what is kept of freed pages is bounded, and little once nothing replaces them") {
  Store store(256 * kMiB);
  for (uint32_t i = 0; i < 64 * 256; ++i) REQUIRE(store.add(kPageBytes));
  const uint64_t full = store.store.resident_bytes();
  for (uint32_t i = 0; i < 64 * 250; ++i) store.remove(store.objects() - 1);
  check_counts(store);
  CHECK(store.store.resident_bytes() < store.live_bytes() + full / 6);
  store.store.shrink();
  check_counts(store);
  CHECK(store.store.resident_bytes() < store.live_bytes() + full / 128);
}

TEST_CASE("at the limit new objects take the resident places of freed ones") {
  Store store(64 * kMiB, kMiB);
  while (store.add(1024)) {
  }
  const uint64_t resident = store.store.resident_bytes();
  CHECK(store.budget.used_bytes() <= kMiB);
  for (int i = 0; i < 3; ++i) store.remove(static_cast<size_t>(i) * 5);
  for (int i = 0; i < 3; ++i) CHECK(store.add(1024));
  CHECK_FALSE(store.add(1024));
  CHECK(store.store.resident_bytes() == resident);
  check_counts(store);
}

TEST_CASE("at the limit a small object may take the place of a larger class") {
  Store store(64 * kMiB, kMiB);
  while (store.add(2048)) {
  }
  const uint64_t resident = store.store.resident_bytes();
  store.remove(0);
  CHECK(store.add(100));
  CHECK_FALSE(store.add(100));
  CHECK(store.store.resident_bytes() == resident);
  store.store.check_invariants(2);
  // It goes as it came: its place is known by where it is.
  store.remove(store.objects() - 1);
  check_counts(store);
  CHECK(store.add(2048));
  check_counts(store);
}

TEST_CASE("at the limit unused pages of other classes are released for a page more") {
  Store store(64 * kMiB, kMiB);
  while (store.add(kPageBytes)) {
  }
  // Seven single pages stay resident without an object; a smaller object may use one whole, but
  // nothing of 4104 bytes finds two neighbours.
  for (int i = 0; i < 7; ++i) store.remove(static_cast<size_t>(i) * 3);
  CHECK(store.add(kMaxObjectBytes));
  store.store.check_invariants(2);
  CHECK(store.budget.used_bytes() <= kMiB);
}

TEST_CASE("an object that may grow and is refused asks for no more the next time") {
  Store store(64 * kMiB, kMiB);
  while (store.add(kPageBytes)) {
  }
  // Above the limit, though not far; and two pages are unused, but not side by side.
  store.budget.charge(kMiB / 16);
  for (int i = 0; i < 2; ++i) store.remove(static_cast<size_t>(i) * 3);
  ObjectStore::Hints hints{};
  ObjectStore::Wanted wanted;
  wanted.bytes = kMaxObjectBytes;
  wanted.purpose = For::kGrowth;
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(store.store.allocate_at_limit(hints, wanted));
    CHECK(wanted.purpose == For::kGrowth);
  }
}

TEST_CASE("while the limit is reached new pages get no place and replacements do") {
  Store store(64 * kMiB, kMiB);
  while (store.add(1024)) {
  }
  store.remove(0);
  store.budget.set_limit_reached();
  CHECK_FALSE(store.add(1024, For::kNewPage));
  CHECK(store.add(1024, For::kReplacement));
  check_counts(store);
}

TEST_CASE("an arena that is full refuses and works again after a free") {
  Store store(kObjectClusterBytes * 2);
  while (store.add(kPageBytes)) {
  }
  CHECK(store.objects() == 128);
  CHECK_FALSE(store.add(16));
  check_counts(store);
  store.remove(5);
  CHECK(store.add(kPageBytes));
  store.remove_all();
  CHECK(store.add(16));
  check_counts(store);
}

TEST_CASE("freeing twice aborts") {
  CHECK(test::aborts([] {
    Store store;
    (void)(store.add(100) && store.add(100));
    const ArenaOffset at = store.object(0);
    store.store.free({&at, 1});
    store.store.free({&at, 1});
  }));
  // Also when the whole cluster has gone with the first.
  CHECK(test::aborts([] {
    Store store;
    (void)store.add(100);
    const ArenaOffset at = store.object(0);
    store.store.free({&at, 1});
    store.store.free({&at, 1});
  }));
  CHECK_FALSE(test::aborts([] {
    Store store;
    (void)store.add(100);
    store.remove_all();
  }));
}

TEST_CASE("the arena of the largest device can be reserved and costs nothing") {
  if (test::kHasSmallAddressSpace) return;
  const uint64_t before = test::own_resident_bytes();
  MemoryBudget budget(0, 90);
  ObjectStore store(ObjectStore::arena_bytes_for(uint64_t{16} << 40), budget);
  ObjectStore::Hints hints{};
  ArenaOffset at;
  REQUIRE(store.allocate(hints, 4096, For::kNewPage, &at));
  CHECK(test::own_resident_bytes() < before + 4 * kMiB);
  store.free({&at, 1});
}

}  // namespace
}  // namespace cswap
