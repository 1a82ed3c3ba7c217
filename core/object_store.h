// The compressed-object allocator: an arena cut into object clusters of 256 KiB, each serving one
// size class (as K. Song's swap cluster allocator and zsmalloc's zspages).
//
//   free  --acquire-->  nonfull[class]  <--last place taken / one given back-->  full
//     ^-------------------- last object freed: pages go back to the OS
//
// Each Worker remembers, per size class, the object cluster that it last used, and tries it first.
// That memory is a hint: the cluster stays on its list, and two Workers share one until they meet
// at its lock; only then the later one takes another. So a small pool does not pay for a half-empty
// cluster per thread and class.
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
// lock guards the lists and is held only to move an object cluster between them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "core/mapping.h"
#include "core/memory_budget.h"
#include "core/mutex.h"
#include "core/size_class.h"
#include "core/types.h"

namespace cswap {

class ObjectStore {
 public:
  // The object cluster a Worker last used for each size class. Part of a Worker; all zero at first.
  struct Hints {
    std::array<uint32_t, kSizeClasses> cluster;  // index + 1; 0 is none
  };

  // An object to be freed: where, and nothing else, for its object cluster knows the class.
  using FreeList = std::span<const ArenaOffset>;

  // Reserves address space for `arena_bytes` (at most kMaxArenaBytes) and the descriptors of its
  // clusters. `budget` must outlive the store. Throws std::system_error.
  ObjectStore(uint64_t arena_bytes, MemoryBudget& budget);

  // Address space that holds `device_bytes` of pages however badly they fragment.
  [[nodiscard]] static uint64_t arena_bytes_for(uint64_t device_bytes);

  // A place for `bytes` (1 to kMaxObjectBytes). False when the limit or the arena cannot hold it;
  // nothing is taken then. Takes object cluster and store locks; the caller may hold slot
  // clusters'.
  [[nodiscard]] bool allocate(Hints& hints, uint32_t bytes, MemoryBudget::For purpose,
                              ArenaOffset* at);

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

  // Aborts when an invariant above is broken. No other thread may be using the store.
  // Level 0 checks the counts, 1 the lists too, 2 every map.
  void check_invariants(int level);

 private:
  enum class List : uint8_t { kNone, kFree, kNonfull, kFull };
  enum class Take { kTaken, kUnfit, kRefused };
  // Which places a search may take: any, or only those that make no page resident.
  enum class Places { kAny, kResidentOnly };

  struct alignas(64) ObjectCluster {
    Mutex<LockRank::kObjectCluster> lock;
    // next, prev and list are guarded by the store lock. Links are index + 1; 0 ends a list.
    uint32_t next;
    uint32_t prev;
    List list;
    uint16_t size_class CSWAP_GUARDED_BY(lock);  // kNoClass while free
    uint16_t used CSWAP_GUARDED_BY(lock);
    uint16_t first_hole CSWAP_GUARDED_BY(lock);  // no place below this one is free
    uint64_t resident CSWAP_GUARDED_BY(lock);    // bit per page
    uint64_t releasable CSWAP_GUARDED_BY(lock);  // bit per page
    std::array<uint64_t, kMaxObjectsPerCluster / 64> map CSWAP_GUARDED_BY(lock);  // bit per place
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
  // stores replace objects, enough for what classes took ahead and for their shifting sizes; after
  // a discard, little.
  struct Kept {
    uint64_t share;
    uint64_t pages;
  };
  static constexpr Kept kKeptForStores{16, 512};
  static constexpr Kept kKeptAtMost{8, 1024};
  static constexpr Kept kKeptAfterDiscard{64, 64};
  // Pages that a busy class takes from the OS at once.
  static constexpr uint32_t kTakenPages = 8;
  // Bounds of one allocation's search: object clusters tried, and candidates when at the limit.
  static constexpr int kMaxTries = 4;
  static constexpr size_t kMaxCandidates = 32;
  static constexpr int kCandidatesPerClass = 4;

  [[nodiscard]] static uint64_t pages_of_place(uint32_t place, SizeClass size_class);
  [[nodiscard]] static bool page_is_unused(const ObjectCluster& cluster, uint32_t page)
      CSWAP_REQUIRES(cluster.lock);
  [[nodiscard]] static uint32_t find_place(const ObjectCluster& cluster, Places places)
      CSWAP_REQUIRES(cluster.lock);

  Take take(uint32_t index, SizeClass size_class, MemoryBudget::For purpose, Places places,
            ArenaOffset* at);
  Take take_locked(ObjectCluster& cluster, uint32_t index, MemoryBudget::For purpose, Places places,
                   ArenaOffset* at) CSWAP_REQUIRES(cluster.lock);
  Take take_fresh(uint32_t index, SizeClass size_class, MemoryBudget::For purpose, ArenaOffset* at);
  Take allocate_in_class(Hints& hints, SizeClass size_class, MemoryBudget::For purpose,
                         ArenaOffset* at);
  [[nodiscard]] bool allocate_at_limit(Hints& hints, SizeClass size_class,
                                       MemoryBudget::For purpose, ArenaOffset* at);
  [[nodiscard]] bool allocate_resident(Hints& hints, SizeClass size_class, ArenaOffset* at);
  [[nodiscard]] size_t collect_candidates(SizeClass size_class, std::span<uint32_t> candidates);
  Choice choose(SizeClass size_class, uint32_t avoid_link);

  [[nodiscard]] bool make_resident(ObjectCluster& cluster, uint32_t index, uint64_t pages,
                                   MemoryBudget::For purpose) CSWAP_REQUIRES(cluster.lock);
  [[nodiscard]] uint64_t pages_ahead(const ObjectCluster& cluster, uint64_t pages) const
      CSWAP_REQUIRES(cluster.lock);
  [[nodiscard]] bool keeps_more_than(Kept kept) const {
    return releasable_pages_.load(std::memory_order_relaxed) >
           resident_bytes() / kPageBytes / kept.share + kept.pages;
  }
  void give_back(ObjectCluster& cluster, uint32_t index, uint32_t place)
      CSWAP_REQUIRES(cluster.lock);
  void release_unused(ObjectCluster& cluster, uint32_t index) CSWAP_REQUIRES(cluster.lock);
  void release_pages(ObjectCluster& cluster, uint32_t index) CSWAP_REQUIRES(cluster.lock);

  void push_nonfull(uint32_t index, SizeClass size_class) CSWAP_REQUIRES(store_lock_);
  void unlink_nonfull(uint32_t index, SizeClass size_class) CSWAP_REQUIRES(store_lock_);
  void push_free(uint32_t index) CSWAP_REQUIRES(store_lock_);

  void check_cluster(ObjectCluster& cluster, int level, uint64_t* live, uint64_t* resident,
                     uint64_t* releasable);

  // Constant after construction.
  MemoryBudget& budget_;
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
