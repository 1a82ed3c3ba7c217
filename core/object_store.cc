#include "core/object_store.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/check.h"

namespace cswap {
namespace {

uint32_t cluster_count(uint64_t arena_bytes) {
  CSWAP_CHECK(arena_bytes <= kMaxArenaBytes);
  return static_cast<uint32_t>(arena_bytes / kObjectClusterBytes);
}

}  // namespace

ObjectStore::ObjectStore(uint64_t arena_bytes, MemoryBudget& budget, AllocMode mode)
    : budget_(budget),
      fine_(mode == AllocMode::kCluster),
      arena_(arena_bytes, "compressed objects"),
      descriptors_(cluster_count(arena_bytes) * sizeof(ObjectCluster), "the object allocator"),
      clusters_(descriptors_.as<ObjectCluster>()),
      max_clusters_(cluster_count(arena_bytes)) {}

uint64_t ObjectStore::arena_bytes_for(uint64_t device_bytes) {
  // A class may leave a quarter of its clusters' places unused and clusters may be half empty; the
  // constant covers a cluster for each class several times over. Who fills the device with objects
  // of one size, leaves one of them in each cluster, and goes on with the next size can use up any
  // such space; then stores are refused.
  constexpr uint64_t kSlackBytes = 1ull << 30;
  return std::min(device_bytes * 4 + kSlackBytes, kMaxArenaBytes);
}

bool ObjectStore::allocate_all(Hints& hints, std::span<Wanted> wanted) {
  const UncheckedGuard whole(store_lock_, !fine_);
  return place_all(hints, wanted, Places::kAny);
}

bool ObjectStore::allocate_at_limit(Hints& hints, Wanted& wanted) {
  const UncheckedGuard whole(store_lock_, !fine_);
  const MemoryBudget::For purpose = wanted.purpose;
  if (place_at_limit(hints, wanted)) return true;
  wanted.purpose = purpose;
  return false;
}

bool ObjectStore::allocate(Hints& hints, uint32_t object_bytes, MemoryBudget::For purpose,
                           ArenaOffset* at) {
  const UncheckedGuard whole(store_lock_, !fine_);
  Wanted wanted;
  wanted.bytes = object_bytes;
  wanted.purpose = purpose;
  if (place_one(hints, wanted) != Take::kTaken && !place_at_limit(hints, wanted)) return false;
  *at = wanted.at;
  return true;
}

void ObjectStore::reserve_all(Hints& hints, std::span<Wanted> wanted) {
  const UncheckedGuard whole(store_lock_, !fine_);
  (void)place_all(hints, wanted, Places::kReserve);
}

// A cluster that has a taken place keeps its class.
bool ObjectStore::use_reserved(ArenaOffset at, MemoryBudget::For purpose) CSWAP_NO_TSA {
  const auto index = static_cast<uint32_t>(at.value / kObjectClusterBytes);
  ObjectCluster& cluster = clusters_[index];
  const SizeClass size_class = cluster.size_class;
  const auto within = static_cast<uint32_t>(at.value % kObjectClusterBytes);
  const uint64_t pages =
      ObjectCluster::pages_of_place(within / class_bytes(size_class), size_class);
  if ((pages & ~cluster.resident_pages()) != 0) {
    const UncheckedGuard whole(store_lock_, !fine_);
    const OptionalGuard guard(cluster.lock, fine_);
    if (!make_resident(cluster, index, pages, purpose)) return false;
  }
  live_.fetch_add(class_bytes(size_class), std::memory_order_relaxed);
  return true;
}

bool ObjectStore::place_all(Hints& hints, std::span<Wanted> wanted, Places places) {
  CSWAP_DCHECK(wanted.size() <= kMaxWanted);
  auto& first = hints.first_wanted;
  for (size_t i = wanted.size(); i-- > 0;) {
    if (wanted[i].has_place()) continue;
    CSWAP_DCHECK(wanted[i].bytes > 0 && wanted[i].bytes <= kMaxObjectBytes);
    const SizeClass size_class = size_class_of(wanted[i].bytes);
    wanted[i].next = std::exchange(first[size_class], static_cast<uint16_t>(i + 1));
  }
  bool all = true;
  for (const Wanted& next : wanted) {
    const SizeClass size_class = size_class_of(next.bytes);
    const uint16_t link = std::exchange(first[size_class], uint16_t{0});
    if (link == 0) continue;
    Chain chain{size_class, places, wanted, link};
    all = place(hints, chain) == Take::kTaken && all;
  }
  return all;
}

ObjectStore::Take ObjectStore::place_one(Hints& hints, Wanted& wanted) {
  wanted.next = 0;  // whatever batch it was of
  Chain chain{size_class_of(wanted.bytes), Places::kAny, {&wanted, 1}, 1};
  return place(hints, chain);
}

// kUnfit when the class has no place and the arena no cluster for it.
ObjectStore::Take ObjectStore::place(Hints& hints, Chain& chain) {
  uint32_t& hint = hints.cluster[chain.size_class];
  uint32_t contended = 0;
  if (hint != 0) {
    bool busy = false;
    const Take result = try_take(hint, chain, &busy);
    if (result != Take::kUnfit) return result;
    if (busy) contended = hint;
  }
  for (int tries = 0; tries <= kMaxTries; ++tries) {
    // Others may fill every cluster between its choice and its lock, or be at work in each: a fresh
    // one is this thread's.
    Choice choice = choose(tries < kMaxTries ? chain.size_class : kNoClass, contended);
    if (choice.link == 0) choice = choose(chain.size_class, 0);  // the arena has no fresh one
    if (choice.link == 0) return Take::kUnfit;
    const uint16_t before = chain.link;
    Take result = Take::kUnfit;
    bool busy = false;
    if (!choice.fresh) {
      result = try_take(choice.link, chain, &busy);
      if (busy) {
        contended = choice.link;
        const Choice fresh = choose(kNoClass, 0);
        if (fresh.link != 0) choice = fresh;
      }
    }
    if (choice.fresh) {
      result = take_fresh(choice.link - 1, chain);
    } else if (busy) {
      result = take(choice.link - 1, chain);
    }
    if (result == Take::kTaken) hint = choice.link;
    if (result != Take::kUnfit) return result;
    if (chain.link != before) tries = -1;  // it was filled by this chain
  }
  return Take::kUnfit;
}

// The analysis cannot follow a lock that is tried only where there is one.
ObjectStore::Take ObjectStore::try_take(uint32_t link, Chain& chain, bool* busy) CSWAP_NO_TSA {
  ObjectCluster& cluster = clusters_[link - 1];
  if (fine_ && !cluster.lock.try_lock()) {
    *busy = true;
    return Take::kUnfit;
  }
  const Take result =
      cluster.size_class == chain.size_class ? take_locked(cluster, link - 1, chain) : Take::kUnfit;
  if (fine_) cluster.lock.unlock();
  return result;
}

ObjectStore::Take ObjectStore::take(uint32_t index, Chain& chain) {
  ObjectCluster& cluster = clusters_[index];
  const OptionalGuard guard(cluster.lock, fine_);
  // Chosen without its lock: it may have been filled, freed or given to another class since.
  if (cluster.size_class != chain.size_class) return Take::kUnfit;
  return take_locked(cluster, index, chain);
}

ObjectStore::Take ObjectStore::take_locked(ObjectCluster& cluster, uint32_t index, Chain& chain) {
  uint64_t taken = 0;
  Take result = Take::kTaken;
  while (chain.link != 0) {
    Wanted& wanted = chain.first();
    result = take_one_locked(cluster, index, chain.places, wanted);
    if (result != Take::kTaken) break;
    chain.link = wanted.next;
    ++taken;
  }
  if (chain.places != Places::kReserve) {
    live_.fetch_add(taken * class_bytes(cluster.size_class), std::memory_order_relaxed);
  }
  return result;
}

ObjectStore::Take ObjectStore::take_one_locked(ObjectCluster& cluster, uint32_t index,
                                               Places places, Wanted& wanted) {
  const SizeClass size_class = cluster.size_class;
  if (cluster.used == cluster_capacity(size_class)) return Take::kUnfit;
  const uint32_t place = cluster.find_place(places == Places::kResidentOnly);
  if (place == ObjectCluster::kNoPlace) return Take::kUnfit;
  const uint64_t pages = ObjectCluster::pages_of_place(place, size_class);
  if (places != Places::kReserve && (pages & ~cluster.resident_pages()) != 0 &&
      !make_resident(cluster, index, pages, wanted.purpose)) {
    return Take::kRefused;
  }
  if (places != Places::kResidentOnly) cluster.first_hole = static_cast<uint16_t>(place + 1);
  claim(cluster, index, place);
  wanted.at.value = uint64_t{index} * kObjectClusterBytes + place * class_bytes(size_class);
  return Take::kTaken;
}

void ObjectStore::claim(ObjectCluster& cluster, uint32_t index, uint32_t place) {
  const SizeClass size_class = cluster.size_class;
  const uint64_t pages = ObjectCluster::pages_of_place(place, size_class);
  if ((pages & cluster.releasable) != 0) {
    releasable_pages_.fetch_sub(uint64_t(std::popcount(pages & cluster.releasable)),
                                std::memory_order_relaxed);
    cluster.releasable &= ~pages;
  }
  cluster.map[place / 64] |= uint64_t{1} << place % 64;
  if (++cluster.used == cluster_capacity(size_class)) {
    const OptionalGuard guard(store_lock_, fine_);
    if (cluster.list == List::kNonfull) unlink_nonfull(index, size_class);
    cluster.list = List::kFull;
  }
}

// `index` came from choose() as fresh, so it is on no list and this thread's alone, but for others'
// stale hints, which find no class in it.
ObjectStore::Take ObjectStore::take_fresh(uint32_t index, Chain& chain) {
  ObjectCluster& cluster = clusters_[index];
  const SizeClass size_class = chain.size_class;
  const OptionalGuard guard(cluster.lock, fine_);
  CSWAP_DCHECK(cluster.size_class == kNoClass && cluster.used == 0);
  CSWAP_DCHECK(cluster.resident_pages() == 0);
  cluster.size_class = static_cast<uint16_t>(size_class);
  cluster.first_hole = 0;
  class_clusters_[size_class].fetch_add(1, std::memory_order_relaxed);
  const Take result = take_locked(cluster, index, chain);
  const bool empty = cluster.used == 0;
  if (empty) {
    cluster.size_class = kNoClass;
    class_clusters_[size_class].fetch_sub(1, std::memory_order_relaxed);
  }
  const OptionalGuard store_guard(store_lock_, fine_);
  if (empty) {
    push_free(index);
  } else if (cluster.list == List::kNone) {
    push_nonfull(index, size_class);
  }
  return result;
}

// The limit refused a page more: reuse what freed objects left in resident pages.
bool ObjectStore::place_at_limit(Hints& hints, Wanted& wanted) {
  const Take first = place_one(hints, wanted);
  if (first == Take::kTaken) return true;
  // The arena has no cluster left: others' have places.
  if (first == Take::kUnfit) return place_resident(hints, wanted);
  const bool replaces = wanted.purpose == MemoryBudget::For::kReplacement;
  // While new pages are refused until the threshold, they do not get these places either; and
  // far over the limit no growth does: those that leave such places could otherwise take new memory
  // again and again.
  if (wanted.purpose == MemoryBudget::For::kNewPage && budget_.limit_reached()) return false;
  if (!replaces && budget_.far_over_limit()) {
    // But what nobody uses is no reason.
    const uint64_t excess_bytes = budget_.excess_bytes();
    if (unused_bytes() >= excess_bytes) release_all_unused(excess_bytes);
    if (budget_.far_over_limit()) return false;
  }
  if (place_resident(hints, wanted)) return true;
  // Walking all clusters is worth it only for a share of the pool.
  if (unused_bytes() * 256 >= resident_bytes() && unused_bytes() >= kMostPages * kPageBytes) {
    if (wanted.purpose == MemoryBudget::For::kNewPage) {
      release_all_unused(~uint64_t{0});
    } else {
      // As much as this one needs at most, which is not more than was in use: the next that grows
      // finds the rest. So growth may have it above what the limit leaves to growth otherwise.
      release_all_unused(kMostPages * kPageBytes);
      wanted.purpose = MemoryBudget::For::kReplacement;
    }
    if (place_one(hints, wanted) == Take::kTaken) return true;
  }
  if (!replaces) return false;
  wanted.purpose = MemoryBudget::For::kCertain;
  return place_one(hints, wanted) == Take::kTaken;
}

bool ObjectStore::place_resident(Hints& hints, Wanted& wanted) {
  const SizeClass size_class = size_class_of(wanted.bytes);
  std::array<uint32_t, kMaxCandidates> candidates;
  const size_t count = collect_candidates(size_class, candidates);
  for (size_t i = 0; i < count; ++i) {
    ObjectCluster& cluster = clusters_[candidates[i] - 1];
    const OptionalGuard guard(cluster.lock, fine_);
    // A larger class serves too: the object's place is freed by where it is, not by its length.
    if (cluster.size_class < size_class) continue;
    if (take_one_locked(cluster, candidates[i] - 1, Places::kResidentOnly, wanted) !=
        Take::kTaken) {
      continue;
    }
    live_.fetch_add(class_bytes(cluster.size_class), std::memory_order_relaxed);
    if (cluster.size_class == size_class) hints.cluster[size_class] = candidates[i];
    return true;
  }
  return false;
}

size_t ObjectStore::collect_candidates(SizeClass size_class, std::span<uint32_t> candidates) {
  size_t count = 0;
  const OptionalGuard guard(store_lock_, fine_);
  for (SizeClass c = size_class; c < kSizeClasses && count < candidates.size(); ++c) {
    const int most = c == size_class ? kCandidatesOfClass : kCandidatesOfLarger;
    int of_class = 0;
    for (uint32_t link = nonfull_[c].head; link != 0 && of_class < most;
         link = clusters_[link - 1].next, ++of_class) {
      if (count == candidates.size()) break;
      candidates[count++] = link;
    }
  }
  return count;
}

// A nonfull object cluster of the class other than `avoid_link`, else a fresh one.
ObjectStore::Choice ObjectStore::choose(SizeClass size_class, uint32_t avoid_link) {
  const OptionalGuard guard(store_lock_, fine_);
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
  const UncheckedGuard whole(store_lock_, !fine_);
  give_back_all(objects, true);
}

void ObjectStore::unreserve(FreeList places) {
  const UncheckedGuard whole(store_lock_, !fine_);
  give_back_all(places, false);
}

void ObjectStore::give_back_all(FreeList places, bool live) {
  size_t i = 0;
  while (i < places.size()) {
    const auto index = static_cast<uint32_t>(places[i].value / kObjectClusterBytes);
    ObjectCluster& cluster = clusters_[index];
    const OptionalGuard guard(cluster.lock, fine_);
    const uint32_t bytes = class_bytes(cluster.size_class);
    CSWAP_CHECK(bytes != 0);
    size_t freed = 0;
    for (; i < places.size() && places[i].value / kObjectClusterBytes == index; ++i, ++freed) {
      const auto within = static_cast<uint32_t>(places[i].value % kObjectClusterBytes);
      give_back(cluster, index, within / bytes);
    }
    if (live) live_.fetch_sub(freed * bytes, std::memory_order_relaxed);
    if (keeps_more_than(kKeptForStores)) {
      release_unused(cluster, index, ~uint64_t{0});
    } else if (budget_.over_limit()) {
      // No more than that: what grows next finds the rest here when the limit gives it nothing.
      release_unused(cluster, index, budget_.excess_bytes());
    }
    budget_.note_free();
  }
  // What was kept while the arena was larger.
  if (keeps_more_than(kKeptAtMost)) release_all_unused(~uint64_t{0});
}

void ObjectStore::give_back(ObjectCluster& cluster, uint32_t index, uint32_t place) {
  const SizeClass size_class = cluster.size_class;
  uint64_t& word = cluster.map[place / 64];
  const uint64_t bit = uint64_t{1} << place % 64;
  CSWAP_CHECK((word & bit) != 0);  // freed twice would serve one place to two pages
  word &= ~bit;
  cluster.first_hole = std::min(cluster.first_hole, static_cast<uint16_t>(place));
  if (cluster.used-- == cluster_capacity(size_class)) {
    const OptionalGuard guard(store_lock_, fine_);
    push_nonfull(index, size_class);
  }
  const uint64_t unused = cluster.unused_pages_of(place) & ~cluster.releasable;
  if (unused == 0) return;
  cluster.releasable |= unused;
  releasable_pages_.fetch_add(uint64_t(std::popcount(unused)), std::memory_order_relaxed);
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
  const UncheckedGuard whole(store_lock_, !fine_);
  ObjectCluster& cluster = clusters_[at.value / kObjectClusterBytes];
  const OptionalGuard guard(cluster.lock, fine_);
  const uint32_t bytes = class_bytes(cluster.size_class);
  if (bytes < object_bytes) return false;
  const auto within = static_cast<uint32_t>(at.value % kObjectClusterBytes);
  const uint32_t place = within / bytes;
  return within % bytes == 0 && (cluster.map[place / 64] >> place % 64 & 1) != 0;
}

void ObjectStore::check_cluster(ObjectCluster& cluster, int level, uint64_t* live,
                                uint64_t* resident, uint64_t* releasable) {
  const OptionalGuard guard(cluster.lock, fine_);
  *live += uint64_t{cluster.used} * class_bytes(cluster.size_class);
  *resident += bytes_of_pages(cluster.resident_pages());
  *releasable += uint64_t(std::popcount(cluster.releasable));
  cluster.check(level);
}

void ObjectStore::check_invariants(int level) {
  const UncheckedGuard whole(store_lock_, !fine_);
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
  const OptionalGuard guard(store_lock_, fine_);
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
