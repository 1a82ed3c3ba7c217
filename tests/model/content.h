// What the model test writes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tests/support/corpus.h"

namespace cswap::test {

// Fills `to`, which will be written at `offset`, with pages of every kind: of programs, random,
// stamped, of one word that fits in a slot word or does not, and zero. What makes up a page lies
// where the device's pages are, whatever the alignment of the range.
void fill(uint64_t offset, std::span<std::byte> to, Random& random);

// A page that says of itself who wrote it, where and which time, and whose every byte follows from
// that, so that a mix of two is recognised.
struct Signature {
  enum class Style : uint8_t { kSame, kSameUnfit, kRandom, kCompressible, kCount };
  Style style = Style::kSame;
  uint64_t writer = 0;      // below 256
  uint64_t page = 0;        // below 65536
  uint64_t generation = 0;  // from 1, below 2^36

  bool operator==(const Signature&) const = default;
};

void sign(const Signature& signature, std::span<std::byte> page);
// Nothing when no signature makes this page.
[[nodiscard]] std::optional<Signature> signature_of(std::span<const std::byte> page);

[[nodiscard]] bool all_zero(std::span<const std::byte> bytes);

}  // namespace cswap::test
