// The compressed-object allocator: an arena cut into object clusters of 256 KiB, each serving one
// size class (as K. Song's swap cluster allocator and zsmalloc's zspages).
//
//   free  --acquire-->  nonfull[class]  <--last place taken / one given back-->  full
//     ^-------------------- last object freed: pages go back to the OS
//
// Each Worker remembers, per size class, the object cluster that it last used, and tries it first.
// That memory is a hint: the cluster stays on its list, and two Workers share one until they meet
// at its lock; only then the later one takes another, a fresh one if it meets somebody there too.
// So a small pool does not pay for a half-empty cluster per thread and class.
//
// Pages of the arena become resident when an object first touches them and are charged to the
// MemoryBudget then. For each object cluster, with its lock held:
//   used       == bits set in its map
//   a page with a live object on it is resident; releasable == resident pages without one
// Pages without objects are kept for the next objects up to a small share of the arena, since
// giving a page back and taking it again costs as much as compressing half a page; above that
// share, when no object is left at all, and when the limit is met, they are released. A class that
// has filled a cluster takes pages of its next one several at a time.
//
// Locks: object cluster (each ObjectCluster::lock), store (store_lock_), in this order. The store
// lock guards the lists and is held only to move an object cluster between them. With
// AllocMode::kGlobal, the design of before, the store lock is held around every call instead, and
// no object cluster's is taken; a SlotCache for each Worker makes calls fewer (core/slot_cache.h).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "core/mapping.h"
#include "core/memory_budget.h"
#include "core/mutex.h"
#include "core/object_cluster.h"
#include "core/options.h"
#include "core/size_class.h"
#include "core/types.h"

namespace cswap {

class ObjectStore {
 public:
  // What a Worker remembers from call to call. All zero at first.
  struct Hints {
    // The object cluster it last used for each size class: index + 1; 0 is none.
    std::array<uint32_t, kSizeClasses> cluster;
    // The first wanted object of each class; all zero between calls.
    std::array<uint16_t, kSizeClasses> first_wanted;
  };

  // An object that needs a place.
  struct Wanted {
    static constexpr uint64_t kNone = ~uint64_t{0};

    ArenaOffset at{kNone};
    uint32_t bytes = 0;  // 1 to kMaxObjectBytes
    MemoryBudget::For purpose = MemoryBudget::For::kNewPage;
    uint16_t next = 0;  // of its class: index + 1; 0 is none. allocate_all()'s own

    [[nodiscard]] bool has_place() const { return at.value != kNone; }
  };
  static constexpr size_t kMaxWanted = 65535;

  // An object to be freed: where, and nothing else, for its object cluster knows the class.
  using FreeList = std::span<const ArenaOffset>;

  // Reserves address space for `arena_bytes` (at most kMaxArenaBytes) and the descriptors of its
  // clusters. `budget` must outlive the store. Throws std::system_error.
  ObjectStore(uint64_t arena_bytes, MemoryBudget& budget, AllocMode mode = AllocMode::kCluster);

  // Address space for objects of `device_bytes` of pages, with room for them to fragment.
  [[nodiscard]] static uint64_t arena_bytes_for(uint64_t device_bytes);

  // Finds places for those of `wanted` (at most kMaxWanted) that have none. False when the limit or
  // the arena refused some; the others keep theirs. Objects of one class are placed together, with
  // one lock round for each object cluster. Takes object cluster and store locks; the caller may
  // hold slot clusters'.
  [[nodiscard]] bool allocate_all(Hints& hints, std::span<Wanted> wanted);

  // For one that allocate_all() refused, after all that waited to be freed has been: reuses what
  // freed objects left in resident pages. False when there is no way; nothing is taken then. Locks
  // as above.
  [[nodiscard]] bool allocate_at_limit(Hints& hints, Wanted& wanted);

  // Both in one, for one object.
  [[nodiscard]] bool allocate(Hints& hints, uint32_t bytes, MemoryBudget::For purpose,
                              ArenaOffset* at);

  // As allocate_all(), for a cache: places only, which take no memory until use_reserved().
  void reserve_all(Hints& hints, std::span<Wanted> wanted);
  // Makes a reserved place an object's. False when the limit refuses; it stays reserved then. Takes
  // the locks only when the place is not yet in resident pages.
  [[nodiscard]] bool use_reserved(ArenaOffset at, MemoryBudget::For purpose);
  // Gives reserved places back. Locks as free().
  void unreserve(FreeList places);

  // Gives objects back. Takes object cluster and store locks. Neighbours in `objects` that lie in
  // one object cluster share one lock round. Keeps their pages for the objects that replace them.
  void free(FreeList objects);

  // To be called after objects were freed that nothing replaces: returns memory to the OS when much
  // is unused. Takes locks as free() does, of all object clusters in turn.
  void shrink();

  // The bytes of an object. Valid until it is freed; the caller's slot cluster lock, or its being
  // not yet published, keeps that from happening.
  [[nodiscard]] std::byte* bytes(ArenaOffset at) const { return arena_.data() + at.value; }

  // Gives every resident page without an object back to the OS. Takes locks as free() does.
  void release_unused_pages();

  // Bytes of live objects, rounded up to their classes.
  [[nodiscard]] uint64_t live_bytes() const { return live_.load(std::memory_order_relaxed); }
  // Resident bytes of the arena, as charged.
  [[nodiscard]] uint64_t resident_bytes() const {
    return resident_.load(std::memory_order_relaxed);
  }
  // Resident bytes of the descriptors, as charged.
  [[nodiscard]] uint64_t metadata_bytes() const {
    return metadata_.load(std::memory_order_relaxed);
  }

  // Whether a live object that may have `object_bytes` starts at `at`. For checks.
  [[nodiscard]] bool holds(ArenaOffset at, uint32_t object_bytes);

  // Aborts when an invariant above is broken. No other thread may be using the store, and no place
  // may be reserved.
  // Level 0 checks the counts, 1 the lists too, 2 every map.
  void check_invariants(int level);

 private:
  using List = ObjectCluster::List;
  enum class Take { kTaken, kUnfit, kRefused };
  // Which places may be taken; kReserve: any, and its pages are left as they are.
  enum class Places { kAny, kResidentOnly, kReserve };

  // Those of the wanted objects of one class that have no place yet.
  struct Chain {
    SizeClass size_class;
    Places places;
    std::span<Wanted> wanted;
    uint16_t link;  // the first: index + 1; 0 is none

    [[nodiscard]] Wanted& first() const { return wanted[link - 1]; }
  };

  struct ListEnds {
    uint32_t head = 0;  // index + 1
    uint32_t tail = 0;
  };
  // An object cluster chosen for an allocation; `fresh` ones are on no list and have no class yet.
  struct Choice {
    uint32_t link = 0;  // index + 1; 0 is none
    bool fresh = false;
  };

  // Pages without objects that are kept: one in `share` of the arena's, and `pages` more. While
  // stores replace objects, enough for what classes took ahead, for their shifting sizes, and for
  // objects that waited to be freed and come back together (measured: a quarter of this makes
  // stores fault pages in that were given back a moment before); after a discard, little.
  struct Kept {
    uint64_t share;
    uint64_t pages;
  };
  static constexpr Kept kKeptForStores{8, 1536};
  static constexpr Kept kKeptAtMost{8, 2048};
  static constexpr Kept kKeptAfterDiscard{64, 64};
  // Pages that a busy class takes from the OS at once.
  static constexpr uint32_t kTakenPages = 8;
  // An object reaches into so many pages at most.
  static constexpr uint64_t kMostPages = 2;
  // Bounds of one allocation's search: object clusters tried, and candidates when at the limit.
  static constexpr int kMaxTries = 4;
  static constexpr size_t kMaxCandidates = 32;
  static constexpr int kCandidatesOfClass = 16;  // of the object's own
  static constexpr int kCandidatesOfLarger = 4;  // of each larger one

  [[nodiscard]] bool place_all(Hints& hints, std::span<Wanted> wanted, Places places);
  Take place(Hints& hints, Chain& chain);
  // As take(), but leaves a cluster that another thread has locked to it, and says so.
  Take try_take(uint32_t link, Chain& chain, bool* busy);
  Take place_one(Hints& hints, Wanted& wanted);
  // kTaken when the whole chain has places; kUnfit when the object cluster has no more of the
  // class, kRefused when the limit refused a page.
  Take take(uint32_t index, Chain& chain);
  Take take_fresh(uint32_t index, Chain& chain);
  Take take_locked(ObjectCluster& cluster, uint32_t index, Chain& chain)
      CSWAP_REQUIRES(cluster.lock);
  Take take_one_locked(ObjectCluster& cluster, uint32_t index, Places places, Wanted& wanted)
      CSWAP_REQUIRES(cluster.lock);
  void claim(ObjectCluster& cluster, uint32_t index, uint32_t place) CSWAP_REQUIRES(cluster.lock);
  [[nodiscard]] bool place_at_limit(Hints& hints, Wanted& wanted);
  [[nodiscard]] bool place_resident(Hints& hints, Wanted& wanted);
  [[nodiscard]] size_t collect_candidates(SizeClass size_class, std::span<uint32_t> candidates);
  Choice choose(SizeClass size_class, uint32_t avoid_link);

  [[nodiscard]] bool make_resident(ObjectCluster& cluster, uint32_t index, uint64_t pages,
                                   MemoryBudget::For purpose) CSWAP_REQUIRES(cluster.lock);
  [[nodiscard]] uint64_t pages_ahead(const ObjectCluster& cluster, uint64_t pages) const
      CSWAP_REQUIRES(cluster.lock);
  // Of resident pages without objects.
  [[nodiscard]] uint64_t unused_bytes() const {
    return releasable_pages_.load(std::memory_order_relaxed) * kPageBytes;
  }
  [[nodiscard]] bool keeps_more_than(Kept kept) const {
    return unused_bytes() > resident_bytes() / kept.share + kept.pages * kPageBytes;
  }
  void give_back_all(FreeList places, bool live);
  void give_back(ObjectCluster& cluster, uint32_t index, uint32_t place)
      CSWAP_REQUIRES(cluster.lock);
  void release_all_unused(uint64_t bytes);
  uint64_t release_unused(ObjectCluster& cluster, uint32_t index, uint64_t bytes)
      CSWAP_REQUIRES(cluster.lock);
  uint64_t release_pages(ObjectCluster& cluster, uint32_t index, uint64_t bytes)
      CSWAP_REQUIRES(cluster.lock);

  void push_nonfull(uint32_t index, SizeClass size_class) CSWAP_REQUIRES(store_lock_);
  void unlink_nonfull(uint32_t index, SizeClass size_class) CSWAP_REQUIRES(store_lock_);
  void push_free(uint32_t index) CSWAP_REQUIRES(store_lock_);

  void check_cluster(ObjectCluster& cluster, int level, uint64_t* live, uint64_t* resident,
                     uint64_t* releasable);

  // Constant after construction.
  MemoryBudget& budget_;
  const bool fine_;  // a lock for each object cluster
  const Mapping arena_;
  const Mapping descriptors_;
  ObjectCluster* const clusters_;
  const uint32_t max_clusters_;

  // Relaxed; each counts what the locks above guard, for readers without one.
  std::atomic<uint64_t> live_{0};
  std::atomic<uint64_t> resident_{0};
  std::atomic<uint64_t> metadata_{0};
  std::atomic<uint64_t> releasable_pages_{0};
  std::atomic<uint32_t> made_{0};  // clusters ever used; written under store_lock_

  Mutex<LockRank::kStore> store_lock_;
  uint32_t free_head_ CSWAP_GUARDED_BY(store_lock_) = 0;
  std::array<ListEnds, kSizeClasses> nonfull_ CSWAP_GUARDED_BY(store_lock_);
  // Object clusters of each class; relaxed, read without a lock.
  std::array<std::atomic<uint32_t>, kSizeClasses> class_clusters_{};
};

}  // namespace cswap
