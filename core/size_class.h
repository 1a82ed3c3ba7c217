// Size classes of the object store: every multiple of 16 bytes up to a raw page with its checksum.
//
// A fine grain costs little here, unlike in a heap: an object cluster becomes resident page by
// page, so a class with few objects pays for the pages that they touch and not for a whole cluster.
// How many objects a cluster takes is chosen so that they end close before a page boundary (as
// zsmalloc chooses its zspage chain sizes): the rest of the cluster is never touched.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/slot_word.h"
#include "core/types.h"

namespace cswap {

inline constexpr uint32_t kChecksumBytes = 8;
// The largest object of a unit of order 0: a raw page and its checksum.
inline constexpr uint32_t kMaxObjectBytes = kPageBytes + kChecksumBytes;

inline constexpr uint32_t kObjectClusterBytes = 256 * 1024;
inline constexpr uint32_t kObjectClusterPages = kObjectClusterBytes / kPageBytes;
static_assert(kObjectClusterPages == 64, "residency is one 64-bit word");
inline constexpr uint32_t kMaxObjectsPerCluster = 1024;

// Index of a size class; class i holds objects of up to i * 16 bytes. 0 is no class.
using SizeClass = uint32_t;
inline constexpr SizeClass kNoClass = 0;
inline constexpr SizeClass kSizeClasses =
    (kMaxObjectBytes + kObjectAlignBytes - 1) / kObjectAlignBytes + 1;

[[nodiscard]] constexpr SizeClass size_class_of(uint32_t object_bytes) {
  return (object_bytes + kObjectAlignBytes - 1) / kObjectAlignBytes;
}
[[nodiscard]] constexpr uint32_t class_bytes(SizeClass size_class) {
  return size_class * kObjectAlignBytes;
}

namespace size_class_internal {

constexpr uint32_t choose_capacity(uint32_t bytes) {
  const uint32_t most = std::min(kObjectClusterBytes / bytes, kMaxObjectsPerCluster);
  uint32_t best = most;
  uint64_t best_waste = ~uint64_t{0};
  // Address space is cheap but not free: give up at most a quarter of a cluster's places.
  for (uint32_t n = most; n > 0 && n >= most - most / 4; --n) {
    const uint32_t tail = (kPageBytes - n * bytes % kPageBytes) % kPageBytes;
    const uint64_t waste = (uint64_t{tail} << 20) / n;
    if (waste < best_waste) {
      best_waste = waste;
      best = n;
    }
  }
  return best;
}

constexpr auto make_capacities() {
  std::array<uint16_t, kSizeClasses> capacities{};
  for (SizeClass c = 1; c < kSizeClasses; ++c) {
    capacities[c] = static_cast<uint16_t>(choose_capacity(class_bytes(c)));
  }
  return capacities;
}

inline constexpr auto kCapacities = make_capacities();

}  // namespace size_class_internal

// Objects that one object cluster of this class holds.
[[nodiscard]] constexpr uint32_t cluster_capacity(SizeClass size_class) {
  return size_class_internal::kCapacities[size_class];
}

}  // namespace cswap
