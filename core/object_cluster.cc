#include "core/object_cluster.h"

#include <algorithm>

#include "core/check.h"

namespace cswap {

uint64_t ObjectCluster::pages_of_place(uint32_t place, SizeClass size_class) {
  const uint32_t begin = place * class_bytes(size_class);
  const uint32_t last = begin + class_bytes(size_class) - 1;
  return bits_between(begin >> kPageShift, last >> kPageShift);
}

bool ObjectCluster::page_is_unused(uint32_t page) const {
  const uint32_t bytes = class_bytes(size_class);
  const uint32_t first = (page << kPageShift) / bytes;
  const uint32_t last =
      std::min(((page << kPageShift) + kPageBytes - 1) / bytes, cluster_capacity(size_class) - 1);
  for (uint32_t word = first / 64; word <= last / 64; ++word) {
    const uint32_t from = word == first / 64 ? first % 64 : 0;
    const uint32_t to = word == last / 64 ? last % 64 : 63;
    if ((map[word] & bits_between(from, to)) != 0) return false;
  }
  return true;
}

uint64_t ObjectCluster::unused_pages_of(uint32_t place) const {
  uint64_t unused = 0;
  uint64_t pages = pages_of_place(place, size_class) & resident_pages();
  for (; pages != 0; pages &= pages - 1) {
    const auto page = static_cast<uint32_t>(std::countr_zero(pages));
    if (page_is_unused(page)) unused |= uint64_t{1} << page;
  }
  return unused;
}

uint32_t ObjectCluster::find_place(bool resident_only) const {
  const uint32_t capacity = cluster_capacity(size_class);
  for (uint32_t word = first_hole / 64; word * 64 < capacity; ++word) {
    uint64_t holes = ~map[word];
    for (; holes != 0; holes &= holes - 1) {
      const uint32_t place = word * 64 + static_cast<uint32_t>(std::countr_zero(holes));
      if (place >= capacity) return kNoPlace;
      if (!resident_only) return place;
      if ((pages_of_place(place, size_class) & ~resident_pages()) == 0) return place;
    }
  }
  return kNoPlace;
}

void ObjectCluster::check(int level) const {
  if (size_class == kNoClass) CSWAP_CHECK(used == 0 && resident_pages() == 0);
  CSWAP_CHECK((releasable & ~resident_pages()) == 0);
  if (level < 2 || size_class == kNoClass) return;
  uint32_t taken = 0;
  for (const uint64_t word : map) taken += static_cast<uint32_t>(std::popcount(word));
  CSWAP_CHECK(taken == used);
  for (uint32_t page = 0; page < kObjectClusterPages; ++page) {
    const uint64_t bit = uint64_t{1} << page;
    const bool beyond = page * kPageBytes >= cluster_capacity(size_class) * class_bytes(size_class);
    const bool unused = beyond || page_is_unused(page);
    const bool is_resident = (resident_pages() & bit) != 0;
    CSWAP_CHECK(unused || is_resident);
    CSWAP_CHECK(((releasable & bit) != 0) == (unused && is_resident));
  }
}

}  // namespace cswap
