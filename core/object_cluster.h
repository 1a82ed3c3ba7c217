// One object cluster: which of its places are taken, and which of its pages are resident. What
// the ObjectStore keeps of each; takes no lock itself.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "core/mutex.h"
#include "core/size_class.h"
#include "core/types.h"

namespace cswap {

// The bits [first, last] of a word.
[[nodiscard]] constexpr uint64_t bits_between(uint32_t first, uint32_t last) {
  return (~uint64_t{0} >> (63 - (last - first))) << first;
}
// Bytes of the pages of a mask.
[[nodiscard]] constexpr uint64_t bytes_of_pages(uint64_t mask) {
  return static_cast<uint64_t>(std::popcount(mask)) * kPageBytes;
}

// Valid when all zero: free, and on no list yet. With a lock for the whole store (alloc=global) the
// store lock guards all of it, and `lock` is not used.
struct alignas(64) ObjectCluster {
  enum class List : uint8_t { kNone, kFree, kNonfull, kFull };
  static constexpr uint32_t kNoPlace = ~0u;

  Mutex<LockRank::kObjectCluster> lock;
  // next, prev and list are guarded by the store lock. Links are index + 1; 0 ends a list.
  uint32_t next;
  uint32_t prev;
  List list;
  uint16_t size_class CSWAP_GUARDED_BY(lock);  // kNoClass while free
  uint16_t used CSWAP_GUARDED_BY(lock);        // places taken
  uint16_t first_hole CSWAP_GUARDED_BY(lock);  // no place below this one is free
  // A bit per page. Written under the lock; a page of a place that the reader has taken is read
  // without it, since such a page stays resident once it is.
  std::atomic<uint64_t> resident;
  uint64_t releasable CSWAP_GUARDED_BY(lock);                                   // bit per page
  std::array<uint64_t, kMaxObjectsPerCluster / 64> map CSWAP_GUARDED_BY(lock);  // bit per place

  // Bit per page that the place reaches into.
  [[nodiscard]] static uint64_t pages_of_place(uint32_t place, SizeClass size_class);

  [[nodiscard]] uint64_t resident_pages() const { return resident.load(std::memory_order_relaxed); }
  void set_resident(uint64_t pages) CSWAP_REQUIRES(lock) {
    resident.store(pages, std::memory_order_relaxed);
  }

  // The lowest free place, so that objects gather in few pages; or kNoPlace. `resident_only` leaves
  // out those that reach into a page which is not resident.
  [[nodiscard]] uint32_t find_place(bool resident_only) const CSWAP_REQUIRES(lock);
  // Whether no place that reaches into the page is taken.
  [[nodiscard]] bool page_is_unused(uint32_t page) const CSWAP_REQUIRES(lock);
  // Those of the place's pages that are resident and hold nothing any more.
  [[nodiscard]] uint64_t unused_pages_of(uint32_t place) const CSWAP_REQUIRES(lock);

  // Aborts when the map and the counts do not agree. With `level` 2 page by page: all places that
  // are taken must be in resident pages then, so none may be only reserved.
  void check(int level) const CSWAP_REQUIRES(lock);
};

}  // namespace cswap
