// One guest page in 64 bits.
//
//   63..61 state
//   kEmpty       all zero: never written, trimmed or zeroed; reads as zeroes
//   kSame        60..0   the word that fills the page, if sign extension from bit 60 restores it
//   kSameObject  as kObject: an object of 8 bytes holds the word that fills the page
//   kObject      60..59  encoding of the object
//                58..55  order of the unit (0: one page)
//                54..42  bytes of the object, without the checksum
//                41..0   where it starts in the arena, in units of 16 bytes
//   kBacking     reserved for the second tier
//
// Transitions, all made by the Pool under the lock of the page's slot cluster:
//   any -> kSame, kSameObject, kObject   a store or a partial zero publishes
//   any -> kEmpty                        a trim or a zero of the whole page
// The object that a word named is freed only after the word has changed.
#pragma once

#include <cstdint>
#include <optional>

#include "compress/codec.h"
#include "core/check.h"
#include "core/types.h"

namespace cswap {

inline constexpr uint32_t kObjectAlignBytes = 16;

class SlotWord {
 public:
  enum class State : uint8_t { kEmpty = 0, kSame = 1, kSameObject = 2, kObject = 3, kBacking = 4 };

  constexpr SlotWord() = default;
  constexpr explicit SlotWord(uint64_t bits) : bits_(bits) {}

  // Nothing when the word does not fit in the bits that are left.
  [[nodiscard]] static constexpr std::optional<SlotWord> same(uint64_t fill) {
    const SlotWord word(bits_of(State::kSame) | (fill & kSameMask));
    if (word.same_fill() != fill) return std::nullopt;
    return word;
  }

  [[nodiscard]] static constexpr SlotWord object(State state, Encoding encoding, uint32_t order,
                                                 uint32_t bytes, ArenaOffset at) {
    CSWAP_DCHECK(order < (1u << kOrderBits) && bytes < (1u << kBytesBits));
    CSWAP_DCHECK(at.value % kObjectAlignBytes == 0 &&
                 at.value / kObjectAlignBytes < (1ull << kOffsetBits));
    return SlotWord(bits_of(state) | uint64_t{static_cast<uint8_t>(encoding)} << kEncodingShift |
                    uint64_t{order} << kOrderShift | uint64_t{bytes} << kBytesShift |
                    at.value / kObjectAlignBytes);
  }

  [[nodiscard]] constexpr uint64_t bits() const { return bits_; }
  [[nodiscard]] constexpr State state() const { return static_cast<State>(bits_ >> kStateShift); }
  [[nodiscard]] constexpr bool is_empty() const { return bits_ == 0; }
  [[nodiscard]] constexpr bool has_object() const {
    return state() == State::kObject || state() == State::kSameObject;
  }
  [[nodiscard]] constexpr bool is_same() const {
    return state() == State::kSame || state() == State::kSameObject;
  }
  [[nodiscard]] constexpr bool is_raw() const {
    return state() == State::kObject && encoding() == Encoding::kRaw;
  }
  // Reads as zeroes without an object.
  [[nodiscard]] constexpr bool is_zero() const {
    return is_empty() || (state() == State::kSame && same_fill() == 0);
  }

  [[nodiscard]] constexpr uint64_t same_fill() const {
    // The shifts move bit 60 to the sign bit and back.
    return static_cast<uint64_t>(static_cast<int64_t>(bits_ << 3) >> 3);
  }
  [[nodiscard]] constexpr Encoding encoding() const {
    return static_cast<Encoding>(bits_ >> kEncodingShift & 3);
  }
  [[nodiscard]] constexpr uint32_t order() const {
    return static_cast<uint32_t>(bits_ >> kOrderShift & ((1u << kOrderBits) - 1));
  }
  [[nodiscard]] constexpr uint32_t object_bytes() const {
    return static_cast<uint32_t>(bits_ >> kBytesShift & ((1u << kBytesBits) - 1));
  }
  [[nodiscard]] constexpr ArenaOffset object_offset() const {
    return {(bits_ & ((1ull << kOffsetBits) - 1)) * kObjectAlignBytes};
  }

  constexpr bool operator==(const SlotWord&) const = default;

 private:
  static constexpr uint32_t kOffsetBits = 42;
  static constexpr uint32_t kBytesBits = 13;
  static constexpr uint32_t kOrderBits = 4;
  static constexpr uint32_t kBytesShift = kOffsetBits;
  static constexpr uint32_t kOrderShift = kBytesShift + kBytesBits;
  static constexpr uint32_t kEncodingShift = kOrderShift + kOrderBits;
  static constexpr uint32_t kStateShift = kEncodingShift + 2;
  static constexpr uint64_t kSameMask = (1ull << kStateShift) - 1;
  static_assert(kStateShift == 61, "three bits of state");

  static constexpr uint64_t bits_of(State state) {
    return uint64_t{static_cast<uint8_t>(state)} << kStateShift;
  }

  uint64_t bits_ = 0;
};

static_assert(sizeof(SlotWord) == 8);

// The largest arena that an offset reaches.
inline constexpr uint64_t kMaxArenaBytes = (1ull << 42) * kObjectAlignBytes;

}  // namespace cswap
