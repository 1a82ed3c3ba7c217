// Caches of places, one for each Worker, for AllocMode::kGlobal: as the kernel's per-CPU swap slot
// cache before K. Song's rework (mm/swap_slots.c), each takes 64 places of a size class at a time
// under the store lock, and gives 64 back.
//
// A place in a cache is taken but takes no memory until an object is put there. So caches hold
// address space, and keep pages that were in use before from going back: drop_all() ends that when
// memory is short or little is left. Near the limit no cache is refilled, as the kernel's are not
// when swap is nearly full: else places that one Worker needs would move from one cache to another.
//
// Locks: slot cache (each Cache::lock), held while one is refilled; the store lock comes after it.
// It is contended only by drop_all().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "core/mapping.h"
#include "core/memory_budget.h"
#include "core/mutex.h"
#include "core/object_store.h"

namespace cswap {

class SlotCaches {
 public:
  // `store` and `budget` must outlive the caches. Throws std::system_error.
  SlotCaches(ObjectStore& store, const MemoryBudget& budget);

  // As ObjectStore::allocate_all(), from the cache of this Worker. Takes its slot cache lock, and
  // the store lock when it has to be refilled.
  [[nodiscard]] bool allocate_all(uint32_t worker, ObjectStore::Hints& hints,
                                  std::span<ObjectStore::Wanted> wanted);

  // Gives all places back. True when there were any. Takes the locks of all caches in turn.
  bool drop_all();

  // Bytes of the places that are held.
  [[nodiscard]] uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kPlaces = 64;  // of a class

  struct OfClass {
    uint32_t count;
    std::array<ArenaOffset, kPlaces> places;
  };
  // Valid when all zero; touched lazily.
  struct alignas(64) Cache {
    Mutex<LockRank::kSlotCache> lock;
    std::array<OfClass, kSizeClasses> classes CSWAP_GUARDED_BY(lock);
  };

  [[nodiscard]] bool allocate_one(Cache& cache, ObjectStore::Hints& hints,
                                  ObjectStore::Wanted& wanted) CSWAP_REQUIRES(cache.lock);
  void refill(OfClass& places, ObjectStore::Hints& hints, SizeClass size_class);

  ObjectStore& store_;
  const MemoryBudget& budget_;
  const Mapping mapping_;  // Cache[kMaxWorkers]
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint32_t> used_{0};  // caches up to the last that was ever used
};

}  // namespace cswap
