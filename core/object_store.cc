#include "core/object_store.h"

#include <algorithm>
#include <bit>

#include "core/check.h"

namespace cswap {
namespace {

constexpr uint32_t kNoPlace = ~0u;

constexpr uint64_t bits_between(uint32_t first, uint32_t last) {
  return (~uint64_t{0} >> (63 - (last - first))) << first;
}

uint32_t cluster_count(uint64_t arena_bytes) {
  CSWAP_CHECK(arena_bytes <= kMaxArenaBytes);
  return static_cast<uint32_t>(arena_bytes / kObjectClusterBytes);
}

}  // namespace

ObjectStore::ObjectStore(uint64_t arena_bytes, MemoryBudget& budget)
    : budget_(budget),
      arena_(arena_bytes, "compressed objects"),
      descriptors_(cluster_count(arena_bytes) * sizeof(ObjectCluster), "the object allocator"),
      clusters_(descriptors_.as<ObjectCluster>()),
      max_clusters_(cluster_count(arena_bytes)) {}

uint64_t ObjectStore::arena_bytes_for(uint64_t device_bytes) {
  // A class may leave a quarter of its clusters' places unused and clusters may be nearly empty;
  // the constant covers a cluster for each class several times over.
  constexpr uint64_t kSlackBytes = 1ull << 30;
  return std::min(device_bytes * 4 + kSlackBytes, kMaxArenaBytes);
}

// Bit per page that the place reaches into.
uint64_t ObjectStore::pages_of_place(uint32_t place, SizeClass size_class) {
  const uint32_t begin = place * class_bytes(size_class);
  const uint32_t last = begin + class_bytes(size_class) - 1;
  return bits_between(begin >> kPageShift, last >> kPageShift);
}

bool ObjectStore::page_is_unused(const ObjectCluster& cluster, uint32_t page) {
  const uint32_t bytes = class_bytes(cluster.size_class);
  const uint32_t first = (page << kPageShift) / bytes;
  const uint32_t last = std::min(((page << kPageShift) + kPageBytes - 1) / bytes,
                                 cluster_capacity(cluster.size_class) - 1);
  for (uint32_t word = first / 64; word <= last / 64; ++word) {
    const uint32_t from = word == first / 64 ? first % 64 : 0;
    const uint32_t to = word == last / 64 ? last % 64 : 63;
    if ((cluster.map[word] & bits_between(from, to)) != 0) return false;
  }
  return true;
}

// The lowest free place, so that objects gather in few pages.
uint32_t ObjectStore::find_place(const ObjectCluster& cluster, Places places) {
  const uint32_t capacity = cluster_capacity(cluster.size_class);
  for (uint32_t word = cluster.first_hole / 64; word * 64 < capacity; ++word) {
    uint64_t holes = ~cluster.map[word];
    for (; holes != 0; holes &= holes - 1) {
      const uint32_t place = word * 64 + static_cast<uint32_t>(std::countr_zero(holes));
      if (place >= capacity) return kNoPlace;
      if (places == Places::kAny) return place;
      if ((pages_of_place(place, cluster.size_class) & ~cluster.resident) == 0) return place;
    }
  }
  return kNoPlace;
}

bool ObjectStore::allocate(Hints& hints, uint32_t object_bytes, MemoryBudget::For purpose,
                           ArenaOffset* at) {
  CSWAP_DCHECK(object_bytes > 0 && object_bytes <= kMaxObjectBytes);
  const SizeClass size_class = size_class_of(object_bytes);
  switch (allocate_in_class(hints, size_class, purpose, at)) {
    case Take::kTaken:
      return true;
    case Take::kRefused:
      return allocate_at_limit(hints, size_class, purpose, at);
    case Take::kUnfit:
      break;
  }
  // The arena has no cluster left: others' have places.
  return allocate_resident(hints, size_class, at);
}

// kUnfit when the class has no place and the arena no cluster for it.
ObjectStore::Take ObjectStore::allocate_in_class(Hints& hints, SizeClass size_class,
                                                 MemoryBudget::For purpose, ArenaOffset* at) {
  uint32_t& hint = hints.cluster[size_class];
  uint32_t contended = 0;
  if (hint != 0) {
    ObjectCluster& cluster = clusters_[hint - 1];
    if (cluster.lock.try_lock()) {
      const Take result = cluster.size_class == size_class
                              ? take_locked(cluster, hint - 1, purpose, Places::kAny, at)
                              : Take::kUnfit;
      cluster.lock.unlock();
      if (result != Take::kUnfit) return result;
    } else {
      contended = hint;
    }
  }
  for (int i = 0; i <= kMaxTries; ++i) {
    // Others may fill every cluster between its choice and its lock; a fresh one is this thread's.
    const Choice choice = choose(i < kMaxTries ? size_class : kNoClass, contended);
    if (choice.link == 0) return Take::kUnfit;
    const Take result = choice.fresh ? take_fresh(choice.link - 1, size_class, purpose, at)
                                     : take(choice.link - 1, size_class, purpose, Places::kAny, at);
    if (result == Take::kUnfit) continue;
    if (result == Take::kTaken) hint = choice.link;
    return result;
  }
  return Take::kUnfit;
}

ObjectStore::Take ObjectStore::take(uint32_t index, SizeClass size_class, MemoryBudget::For purpose,
                                    Places places, ArenaOffset* at) {
  ObjectCluster& cluster = clusters_[index];
  const Guard guard(cluster.lock);
  // Chosen without its lock: it may have been filled, freed or given to another class since.
  if (cluster.size_class != size_class) return Take::kUnfit;
  return take_locked(cluster, index, purpose, places, at);
}

ObjectStore::Take ObjectStore::take_locked(ObjectCluster& cluster, uint32_t index,
                                           MemoryBudget::For purpose, Places places,
                                           ArenaOffset* at) {
  const SizeClass size_class = cluster.size_class;
  const uint32_t place = find_place(cluster, places);
  if (place == kNoPlace) return Take::kUnfit;
  const uint64_t pages = pages_of_place(place, size_class);
  if ((pages & ~cluster.resident) != 0 && !make_resident(cluster, index, pages, purpose)) {
    return Take::kRefused;
  }
  if ((pages & cluster.releasable) != 0) {
    releasable_pages_.fetch_sub(uint64_t(std::popcount(pages & cluster.releasable)),
                                std::memory_order_relaxed);
    cluster.releasable &= ~pages;
  }
  cluster.map[place / 64] |= uint64_t{1} << place % 64;
  if (places == Places::kAny) cluster.first_hole = static_cast<uint16_t>(place + 1);
  if (++cluster.used == cluster_capacity(size_class)) {
    const Guard guard(store_lock_);
    if (cluster.list == List::kNonfull) unlink_nonfull(index, size_class);
    cluster.list = List::kFull;
  }
  live_.fetch_add(class_bytes(size_class), std::memory_order_relaxed);
  at->value = uint64_t{index} * kObjectClusterBytes + place * class_bytes(size_class);
  return Take::kTaken;
}

// Charges the pages that are not resident, and for a busy class some after them, which the OS gives
// cheaper together than one fault at a time.
bool ObjectStore::make_resident(ObjectCluster& cluster, uint32_t index, uint64_t pages,
                                MemoryBudget::For purpose) {
  const uint64_t needed = pages & ~cluster.resident;
  const auto bytes_of = [](uint64_t mask) { return uint64_t(std::popcount(mask)) * kPageBytes; };
  uint64_t taken = pages_ahead(cluster, needed);
  // What nobody needs yet has no claim to the reserve.
  if (taken != needed && !budget_.try_charge(bytes_of(taken), MemoryBudget::For::kNewPage)) {
    taken = needed;
  }
  if (taken == needed && !budget_.try_charge(bytes_of(needed), purpose)) return false;
  if (taken != needed) {
    const auto first = static_cast<uint32_t>(std::countr_zero(taken));
    arena_.populate(uint64_t{index} * kObjectClusterBytes + uint64_t{first} * kPageBytes,
                    bytes_of(taken));
    cluster.releasable |= taken & ~needed;
    releasable_pages_.fetch_add(uint64_t(std::popcount(taken & ~needed)),
                                std::memory_order_relaxed);
  }
  resident_.fetch_add(bytes_of(taken), std::memory_order_relaxed);
  cluster.resident |= taken;
  return true;
}

// The pages to take when those of `needed` are: themselves, or a run that starts with them.
uint64_t ObjectStore::pages_ahead(const ObjectCluster& cluster, uint64_t needed) const {
  const SizeClass size_class = cluster.size_class;
  // A class with one cluster may never fill it: take in proportion to what it uses.
  const uint32_t most =
      class_clusters_[size_class].load(std::memory_order_relaxed) > 1
          ? kTakenPages
          : std::min(kTakenPages, static_cast<uint32_t>(std::popcount(cluster.resident)) / 16);
  const auto first = static_cast<uint32_t>(std::countr_zero(needed));
  const uint32_t used_pages =
      (cluster_capacity(size_class) * class_bytes(size_class) + kPageBytes - 1) >> kPageShift;
  const auto gap = static_cast<uint32_t>(std::countr_zero(cluster.resident >> first));
  const uint32_t run = std::min({most, used_pages - first, gap});
  if (run <= static_cast<uint32_t>(std::popcount(needed))) return needed;
  return bits_between(first, first + run - 1);
}

// `index` came from choose() as fresh, so it is on no list and this thread's alone, but for others'
// stale hints, which find no class in it.
ObjectStore::Take ObjectStore::take_fresh(uint32_t index, SizeClass size_class,
                                          MemoryBudget::For purpose, ArenaOffset* at) {
  ObjectCluster& cluster = clusters_[index];
  const Guard guard(cluster.lock);
  CSWAP_DCHECK(cluster.size_class == kNoClass && cluster.used == 0 && cluster.resident == 0);
  cluster.size_class = static_cast<uint16_t>(size_class);
  cluster.first_hole = 0;
  class_clusters_[size_class].fetch_add(1, std::memory_order_relaxed);
  const Take result = take_locked(cluster, index, purpose, Places::kAny, at);
  if (result != Take::kTaken) {
    cluster.size_class = kNoClass;
    class_clusters_[size_class].fetch_sub(1, std::memory_order_relaxed);
  }
  const Guard store_guard(store_lock_);
  if (result != Take::kTaken) {
    push_free(index);
  } else if (cluster.list == List::kNone) {
    push_nonfull(index, size_class);
  }
  return result;
}

// The limit refused a page more: reuse what freed objects left in resident pages.
bool ObjectStore::allocate_at_limit(Hints& hints, SizeClass size_class, MemoryBudget::For purpose,
                                    ArenaOffset* at) {
  const bool replaces = purpose == MemoryBudget::For::kReplacement;
  // While new pages are refused until the threshold, they do not get these places either; and
  // far over the limit no growth does: those that leave such places could otherwise take new memory
  // again and again.
  if (purpose == MemoryBudget::For::kNewPage && budget_.limit_reached()) return false;
  if (!replaces && budget_.far_over_limit()) return false;
  if (allocate_resident(hints, size_class, at)) return true;
  // Walking all clusters is worth it only for a share of the pool.
  const uint64_t unused_bytes = releasable_pages_.load(std::memory_order_relaxed) * kPageBytes;
  if (unused_bytes * 256 >= resident_bytes() && unused_bytes >= 2 * kPageBytes) {
    release_unused_pages();
    if (allocate_in_class(hints, size_class, purpose, at) == Take::kTaken) return true;
  }
  return replaces &&
         allocate_in_class(hints, size_class, MemoryBudget::For::kCertain, at) == Take::kTaken;
}

bool ObjectStore::allocate_resident(Hints& hints, SizeClass size_class, ArenaOffset* at) {
  std::array<uint32_t, kMaxCandidates> candidates;
  const size_t count = collect_candidates(size_class, candidates);
  for (size_t i = 0; i < count; ++i) {
    ObjectCluster& cluster = clusters_[candidates[i] - 1];
    const Guard guard(cluster.lock);
    // A larger class serves too: the object's place is freed by where it is, not by its length.
    if (cluster.size_class < size_class) continue;
    const Take result = take_locked(cluster, candidates[i] - 1, MemoryBudget::For::kReplacement,
                                    Places::kResidentOnly, at);
    if (result != Take::kTaken) continue;
    if (cluster.size_class == size_class) hints.cluster[size_class] = candidates[i];
    return true;
  }
  return false;
}

size_t ObjectStore::collect_candidates(SizeClass size_class, std::span<uint32_t> candidates) {
  size_t count = 0;
  const Guard guard(store_lock_);
  for (SizeClass c = size_class; c < kSizeClasses && count < candidates.size(); ++c) {
    int of_class = 0;
    for (uint32_t link = nonfull_[c].head; link != 0 && of_class < kCandidatesPerClass;
         link = clusters_[link - 1].next, ++of_class) {
      if (count == candidates.size()) break;
      candidates[count++] = link;
    }
  }
  return count;
}

// A nonfull object cluster of the class other than `avoid_link`, else a fresh one.
ObjectStore::Choice ObjectStore::choose(SizeClass size_class, uint32_t avoid_link) {
  const Guard guard(store_lock_);
  uint32_t link = nonfull_[size_class].head;
  if (link != 0 && link == avoid_link) link = clusters_[link - 1].next;
  if (link != 0) return {link, false};
  if (free_head_ != 0) {
    link = free_head_;
    free_head_ = clusters_[link - 1].next;
    clusters_[link - 1].list = List::kNone;
    return {link, true};
  }
  const uint32_t made = made_.load(std::memory_order_relaxed);
  if (made == max_clusters_) return {};
  made_.store(made + 1, std::memory_order_relaxed);
  metadata_.fetch_add(sizeof(ObjectCluster), std::memory_order_relaxed);
  budget_.charge(sizeof(ObjectCluster));
  return {made + 1, true};
}

void ObjectStore::free(FreeList objects) {
  size_t i = 0;
  while (i < objects.size()) {
    const auto index = static_cast<uint32_t>(objects[i].value / kObjectClusterBytes);
    ObjectCluster& cluster = clusters_[index];
    const Guard guard(cluster.lock);
    const uint32_t bytes = class_bytes(cluster.size_class);
    CSWAP_CHECK(bytes != 0);
    size_t freed = 0;
    for (; i < objects.size() && objects[i].value / kObjectClusterBytes == index; ++i, ++freed) {
      const auto within = static_cast<uint32_t>(objects[i].value % kObjectClusterBytes);
      give_back(cluster, index, within / bytes);
    }
    live_.fetch_sub(freed * bytes, std::memory_order_relaxed);
    if (cluster.releasable != 0 && (keeps_more_than(kKeptForStores) || budget_.over_limit())) {
      release_unused(cluster, index);
    }
  }
  // What was kept while the arena was larger.
  if (keeps_more_than(kKeptAtMost)) release_unused_pages();
}

void ObjectStore::shrink() {
  if (live_bytes() == 0 ? resident_bytes() > 0 : keeps_more_than(kKeptAfterDiscard)) {
    release_unused_pages();
  }
}

void ObjectStore::give_back(ObjectCluster& cluster, uint32_t index, uint32_t place) {
  const SizeClass size_class = cluster.size_class;
  uint64_t& word = cluster.map[place / 64];
  const uint64_t bit = uint64_t{1} << place % 64;
  CSWAP_CHECK((word & bit) != 0);  // freed twice would serve one place to two pages
  word &= ~bit;
  cluster.first_hole = std::min(cluster.first_hole, static_cast<uint16_t>(place));
  if (cluster.used-- == cluster_capacity(size_class)) {
    const Guard guard(store_lock_);
    push_nonfull(index, size_class);
  }
  for (uint64_t pages = pages_of_place(place, size_class); pages != 0; pages &= pages - 1) {
    const auto page = static_cast<uint32_t>(std::countr_zero(pages));
    if (!page_is_unused(cluster, page)) continue;
    cluster.releasable |= uint64_t{1} << page;
    releasable_pages_.fetch_add(1, std::memory_order_relaxed);
  }
}

// Gives back the cluster's pages without objects, and the cluster itself when it has none.
void ObjectStore::release_unused(ObjectCluster& cluster, uint32_t index) {
  if (cluster.releasable != 0) release_pages(cluster, index);
  if (cluster.used > 0 || cluster.size_class == kNoClass) return;
  CSWAP_DCHECK(cluster.resident == 0);
  class_clusters_[cluster.size_class].fetch_sub(1, std::memory_order_relaxed);
  const Guard guard(store_lock_);
  unlink_nonfull(index, cluster.size_class);
  cluster.size_class = kNoClass;
  push_free(index);
}

void ObjectStore::release_pages(ObjectCluster& cluster, uint32_t index) {
  uint64_t left = cluster.releasable;
  const uint64_t bytes = uint64_t(std::popcount(left)) * kPageBytes;
  releasable_pages_.fetch_sub(bytes / kPageBytes, std::memory_order_relaxed);
  while (left != 0) {
    const auto first = static_cast<uint32_t>(std::countr_zero(left));
    const auto pages = static_cast<uint32_t>(std::countr_one(left >> first));
    arena_.release(uint64_t{index} * kObjectClusterBytes + uint64_t{first} * kPageBytes,
                   uint64_t{pages} * kPageBytes);
    left &= ~bits_between(first, first + pages - 1);
  }
  cluster.resident &= ~cluster.releasable;
  cluster.releasable = 0;
  resident_.fetch_sub(bytes, std::memory_order_relaxed);
  budget_.release(bytes);
}

void ObjectStore::release_unused_pages() {
  const uint32_t made = made_.load(std::memory_order_relaxed);
  for (uint32_t index = 0; index < made; ++index) {
    ObjectCluster& cluster = clusters_[index];
    const Guard guard(cluster.lock);
    release_unused(cluster, index);
  }
}

void ObjectStore::push_nonfull(uint32_t index, SizeClass size_class) {
  ListEnds& ends = nonfull_[size_class];
  ObjectCluster& cluster = clusters_[index];
  CSWAP_DCHECK(cluster.list != List::kNonfull && cluster.list != List::kFree);
  cluster.list = List::kNonfull;
  cluster.next = 0;
  cluster.prev = ends.tail;
  (ends.tail != 0 ? clusters_[ends.tail - 1].next : ends.head) = index + 1;
  ends.tail = index + 1;
}

void ObjectStore::unlink_nonfull(uint32_t index, SizeClass size_class) {
  ListEnds& ends = nonfull_[size_class];
  ObjectCluster& cluster = clusters_[index];
  CSWAP_DCHECK(cluster.list == List::kNonfull);
  (cluster.prev != 0 ? clusters_[cluster.prev - 1].next : ends.head) = cluster.next;
  (cluster.next != 0 ? clusters_[cluster.next - 1].prev : ends.tail) = cluster.prev;
  cluster.list = List::kNone;
}

void ObjectStore::push_free(uint32_t index) {
  ObjectCluster& cluster = clusters_[index];
  CSWAP_DCHECK(cluster.list == List::kNone);
  cluster.list = List::kFree;
  cluster.next = free_head_;
  free_head_ = index + 1;
}

bool ObjectStore::holds(ArenaOffset at, uint32_t object_bytes) {
  ObjectCluster& cluster = clusters_[at.value / kObjectClusterBytes];
  const Guard guard(cluster.lock);
  const uint32_t bytes = class_bytes(cluster.size_class);
  if (bytes < object_bytes) return false;
  const auto within = static_cast<uint32_t>(at.value % kObjectClusterBytes);
  const uint32_t place = within / bytes;
  return within % bytes == 0 && (cluster.map[place / 64] >> place % 64 & 1) != 0;
}

void ObjectStore::check_cluster(ObjectCluster& cluster, int level, uint64_t* live,
                                uint64_t* resident, uint64_t* releasable) {
  const Guard guard(cluster.lock);
  *live += uint64_t{cluster.used} * class_bytes(cluster.size_class);
  *resident += uint64_t(std::popcount(cluster.resident)) * kPageBytes;
  *releasable += uint64_t(std::popcount(cluster.releasable));
  if (cluster.size_class == kNoClass) CSWAP_CHECK(cluster.used == 0 && cluster.resident == 0);
  CSWAP_CHECK((cluster.releasable & ~cluster.resident) == 0);
  if (level < 2 || cluster.size_class == kNoClass) return;
  uint32_t used = 0;
  for (const uint64_t word : cluster.map) used += static_cast<uint32_t>(std::popcount(word));
  CSWAP_CHECK(used == cluster.used);
  for (uint32_t page = 0; page < kObjectClusterPages; ++page) {
    const uint64_t bit = uint64_t{1} << page;
    const bool beyond =
        page * kPageBytes >= cluster_capacity(cluster.size_class) * class_bytes(cluster.size_class);
    const bool unused = beyond || page_is_unused(cluster, page);
    if (!unused) CSWAP_CHECK((cluster.resident & bit) != 0);
    CSWAP_CHECK(((cluster.releasable & bit) != 0) == (unused && (cluster.resident & bit) != 0));
  }
}

void ObjectStore::check_invariants(int level) {
  uint64_t live = 0;
  uint64_t resident = 0;
  uint64_t releasable = 0;
  const uint32_t made = made_.load(std::memory_order_relaxed);
  for (uint32_t index = 0; index < made; ++index) {
    check_cluster(clusters_[index], level, &live, &resident, &releasable);
  }
  CSWAP_CHECK(live == live_bytes());
  CSWAP_CHECK(resident == resident_bytes());
  CSWAP_CHECK(releasable == releasable_pages_.load(std::memory_order_relaxed));
  if (level < 1) return;
  const Guard guard(store_lock_);
  uint32_t listed = 0;
  for (uint32_t link = free_head_; link != 0; link = clusters_[link - 1].next, ++listed) {
    CSWAP_CHECK(clusters_[link - 1].list == List::kFree);
  }
  for (SizeClass c = 1; c < kSizeClasses; ++c) {
    uint32_t prev = 0;
    for (uint32_t link = nonfull_[c].head; link != 0; link = clusters_[link - 1].next, ++listed) {
      CSWAP_CHECK(clusters_[link - 1].list == List::kNonfull && clusters_[link - 1].prev == prev);
      prev = link;
    }
    CSWAP_CHECK(nonfull_[c].tail == prev);
  }
  for (uint32_t index = 0; index < made; ++index) listed += clusters_[index].list == List::kFull;
  CSWAP_CHECK(listed == made);
}

}  // namespace cswap
