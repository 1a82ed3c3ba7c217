// Glossary. Every word below has this one meaning in code, parameters, statistics and manual.
//
//   guest page     4096 bytes of a device, the unit of atomicity
//   slot           the place of one guest page in a device's slot table; its index is a PageIndex
//   slot cluster   512 slots (2 MiB of device), as the kernel's swap cluster; has one lock
//   unit           a naturally aligned run of 2^order guest pages compressed as one piece
//   object         the stored bytes of one unit, in the object store
//   arena          the mapping that holds all objects
//   object cluster a stretch of the arena that serves one size class
//   size class     the bytes that an object's place in the arena takes, a multiple of 16
//   ArenaOffset    where an object starts, in bytes from the start of the arena; also its handle
//
// Never "cluster" alone. Indices, counts and sizes are different types or carry their unit last.
#pragma once

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace cswap {

inline constexpr uint32_t kPageShift = 12;
inline constexpr uint32_t kPageBytes = 1u << kPageShift;

// Orders that statistics tell apart, of requests and of units: 4 KiB to 2 MiB, as folios have them.
// What is larger counts as several of the largest. Until units of several pages are stored, every
// unit is of order 0.
inline constexpr uint32_t kOrders = 10;

// The order of a run of pages, rounded down: 1 for two or three. `pages` is not 0.
[[nodiscard]] constexpr uint32_t order_of(uint64_t pages) {
  const auto order = static_cast<uint32_t>(std::bit_width(pages)) - 1;
  return order < kOrders ? order : kOrders - 1;
}

inline constexpr uint32_t kSlotClusterShift = 9;
inline constexpr uint32_t kSlotClusterSlots = 1u << kSlotClusterShift;

// Index of a guest page in its device.
struct PageIndex {
  uint64_t value = 0;
  constexpr auto operator<=>(const PageIndex&) const = default;
};

// Byte offset of an object in the arena, a multiple of kObjectAlignBytes.
struct ArenaOffset {
  uint64_t value = 0;
  constexpr auto operator<=>(const ArenaOffset&) const = default;
};

}  // namespace cswap
