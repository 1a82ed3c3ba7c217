#include "core/slot_cache.h"

#include <algorithm>
#include <utility>

#include "core/options.h"

namespace cswap {

SlotCaches::SlotCaches(ObjectStore& store, const MemoryBudget& budget)
    : store_(store), budget_(budget), mapping_(kMaxWorkers * sizeof(Cache), "the slot caches") {}

bool SlotCaches::allocate_all(uint32_t worker, ObjectStore::Hints& hints,
                              std::span<ObjectStore::Wanted> wanted) {
  uint32_t used = used_.load(std::memory_order_relaxed);
  while (used <= worker &&
         !used_.compare_exchange_weak(used, worker + 1, std::memory_order_relaxed)) {
  }
  Cache& cache = mapping_.as<Cache>()[worker];
  const Guard guard(cache.lock);
  bool all = true;
  for (ObjectStore::Wanted& next : wanted) {
    if (!next.has_place()) all = allocate_one(cache, hints, next) && all;
  }
  return all || (budget_.near_limit() && store_.allocate_all(hints, wanted));
}

bool SlotCaches::allocate_one(Cache& cache, ObjectStore::Hints& hints,
                              ObjectStore::Wanted& wanted) {
  const SizeClass size_class = size_class_of(wanted.bytes);
  OfClass& ready = cache.classes[size_class];
  if (ready.count == 0 && !budget_.near_limit()) refill(ready, hints, size_class);
  if (ready.count == 0) return false;
  const ArenaOffset at = ready.places[ready.count - 1];
  if (!store_.use_reserved(at, wanted.purpose)) return false;
  --ready.count;
  bytes_.fetch_sub(class_bytes(size_class), std::memory_order_relaxed);
  wanted.at = at;
  return true;
}

void SlotCaches::refill(OfClass& ready, ObjectStore::Hints& hints, SizeClass size_class) {
  std::array<ObjectStore::Wanted, kPlaces> wanted;
  for (ObjectStore::Wanted& next : wanted) {
    next.bytes = std::min(class_bytes(size_class), kMaxObjectBytes);
  }
  store_.reserve_all(hints, wanted);
  const bool keep = !budget_.near_limit();  // still: drop_all() does not see what comes after it
  // The last is handed out first: the lowest place, as without a cache.
  for (size_t i = wanted.size(); i-- > 0;) {
    if (wanted[i].has_place()) ready.places[ready.count++] = wanted[i].at;
  }
  if (!keep) {
    store_.unreserve(std::span(ready.places).first(std::exchange(ready.count, 0)));
    return;
  }
  bytes_.fetch_add(uint64_t{ready.count} * class_bytes(size_class), std::memory_order_relaxed);
}

bool SlotCaches::drop_all() {
  if (bytes() == 0) return false;
  const uint32_t used = used_.load(std::memory_order_relaxed);
  for (uint32_t worker = 0; worker < used; ++worker) {
    Cache& cache = mapping_.as<Cache>()[worker];
    const Guard guard(cache.lock);
    for (SizeClass size_class = 1; size_class < kSizeClasses; ++size_class) {
      OfClass& ready = cache.classes[size_class];
      if (ready.count == 0) continue;
      store_.unreserve(std::span(ready.places).first(ready.count));
      bytes_.fetch_sub(uint64_t{ready.count} * class_bytes(size_class), std::memory_order_relaxed);
      ready.count = 0;
    }
  }
  return true;
}

}  // namespace cswap
