// The memory of the ObjectStore: pages of the arena become resident, are kept, and go back.
#include <algorithm>
#include <array>
#include <bit>

#include "core/check.h"
#include "core/object_store.h"

namespace cswap {

// Charges the pages that are not resident, and for a busy class some after them, which the OS gives
// cheaper together than one fault at a time.
bool ObjectStore::make_resident(ObjectCluster& cluster, uint32_t index, uint64_t pages,
                                MemoryBudget::For purpose) {
  const uint64_t needed = pages & ~cluster.resident_pages();
  if (needed == 0) return true;
  uint64_t taken = pages_ahead(cluster, needed);
  // What nobody needs yet has no claim to the reserve.
  if (taken != needed && !budget_.try_charge(bytes_of_pages(taken), MemoryBudget::For::kNewPage)) {
    taken = needed;
  }
  if (taken == needed && !budget_.try_charge(bytes_of_pages(needed), purpose)) return false;
  if (taken != needed) {
    const auto first = static_cast<uint32_t>(std::countr_zero(taken));
    arena_.populate(uint64_t{index} * kObjectClusterBytes + uint64_t{first} * kPageBytes,
                    bytes_of_pages(taken));
    for (uint64_t ahead = taken & ~needed; ahead != 0; ahead &= ahead - 1) {
      // A cache may have reserved places in it.
      if (!cluster.page_is_unused(static_cast<uint32_t>(std::countr_zero(ahead)))) continue;
      cluster.releasable |= ahead & -ahead;
      releasable_pages_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  resident_.fetch_add(bytes_of_pages(taken), std::memory_order_relaxed);
  cluster.set_resident(cluster.resident_pages() | taken);
  return true;
}

// The pages to take when those of `needed` are: themselves, or a run that starts with them.
uint64_t ObjectStore::pages_ahead(const ObjectCluster& cluster, uint64_t needed) const {
  const SizeClass size_class = cluster.size_class;
  // A class with one cluster may never fill it: take in proportion to what it uses.
  const uint32_t most =
      class_clusters_[size_class].load(std::memory_order_relaxed) > 1
          ? kTakenPages
          : std::min(kTakenPages,
                     static_cast<uint32_t>(std::popcount(cluster.resident_pages())) / 16);
  const auto first = static_cast<uint32_t>(std::countr_zero(needed));
  const uint32_t used_pages =
      (cluster_capacity(size_class) * class_bytes(size_class) + kPageBytes - 1) >> kPageShift;
  const auto gap = static_cast<uint32_t>(std::countr_zero(cluster.resident_pages() >> first));
  const uint32_t run = std::min({most, used_pages - first, gap});
  if (run <= static_cast<uint32_t>(std::popcount(needed))) return needed;
  return bits_between(first, first + run - 1);
}

void ObjectStore::shrink() {
  if (live_bytes() == 0 ? resident_bytes() > 0 : keeps_more_than(kKeptAfterDiscard)) {
    release_unused_pages();
  }
}

// Gives back the cluster's pages without objects, as many as `bytes` are at least, and the cluster
// itself when it has none left. Returns how much.
uint64_t ObjectStore::release_unused(ObjectCluster& cluster, uint32_t index, uint64_t bytes) {
  const uint64_t released = cluster.releasable == 0 ? 0 : release_pages(cluster, index, bytes);
  if (cluster.resident_pages() != 0 || cluster.used > 0 || cluster.size_class == kNoClass) {
    return released;
  }
  class_clusters_[cluster.size_class].fetch_sub(1, std::memory_order_relaxed);
  const OptionalGuard guard(store_lock_, fine_);
  unlink_nonfull(index, cluster.size_class);
  cluster.size_class = kNoClass;
  push_free(index);
  return released;
}

uint64_t ObjectStore::release_pages(ObjectCluster& cluster, uint32_t index, uint64_t bytes) {
  uint64_t released = 0;
  std::array<Mapping::Range, kObjectClusterPages / 2 + 1> ranges;
  size_t runs = 0;
  // From the top, since places are taken from the bottom.
  while (cluster.releasable != 0 && bytes_of_pages(released) < bytes) {
    const auto last = 63 - static_cast<uint32_t>(std::countl_zero(cluster.releasable));
    const auto run_pages =
        static_cast<uint64_t>(std::countl_one(cluster.releasable << (63 - last)));
    const uint64_t wanted_pages = (bytes - bytes_of_pages(released) - 1) / kPageBytes + 1;
    const auto pages = static_cast<uint32_t>(std::min(run_pages, wanted_pages));
    const uint32_t first = last + 1 - pages;
    ranges[runs++] = {uint64_t{index} * kObjectClusterBytes + uint64_t{first} * kPageBytes,
                      uint64_t{pages} * kPageBytes};
    const uint64_t run = bits_between(first, last);
    cluster.releasable &= ~run;
    released |= run;
  }
  arena_.release_all(std::span(ranges).first(runs));
  cluster.set_resident(cluster.resident_pages() & ~released);
  resident_.fetch_sub(bytes_of_pages(released), std::memory_order_relaxed);
  // Before they are missing from the unused ones: who seeks memory sees it at one place or both.
  budget_.release(bytes_of_pages(released));
  releasable_pages_.fetch_sub(uint64_t(std::popcount(released)), std::memory_order_relaxed);
  return bytes_of_pages(released);
}

void ObjectStore::release_unused_pages() {
  const UncheckedGuard whole(store_lock_, !fine_);
  release_all_unused(~uint64_t{0});
}

// Of all clusters together as many pages as `bytes` are at least, if there are so many.
void ObjectStore::release_all_unused(uint64_t bytes) {
  const uint32_t made = made_.load(std::memory_order_relaxed);
  for (uint32_t index = 0; index < made && bytes > 0; ++index) {
    ObjectCluster& cluster = clusters_[index];
    const OptionalGuard guard(cluster.lock, fine_);
    const uint64_t released = release_unused(cluster, index, bytes);
    bytes -= std::min(bytes, released);
  }
}

}  // namespace cswap
