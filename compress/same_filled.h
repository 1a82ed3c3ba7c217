// Pages that repeat one 8-byte word need no object (zram and zswap call them same-filled).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace cswap {

// The word that fills all of `page`, if one does. `page` is a positive multiple of 8 bytes.
[[nodiscard]] inline std::optional<uint64_t> repeated_word(std::span<const std::byte> page) {
  // A page equals itself moved by one word exactly if all its words are equal, and memcmp is the
  // widest compare that the machine has. Most other pages end at the first words compared.
  if (std::memcmp(page.data(), page.data() + sizeof(uint64_t), page.size() - sizeof(uint64_t)) != 0)
    return std::nullopt;
  uint64_t word;
  std::memcpy(&word, page.data(), sizeof word);
  return word;
}

// Fills `page`, a multiple of 8 bytes at any address, with `word`.
inline void fill_with_word(std::span<std::byte> page, uint64_t word) {
  if (word == 0) {
    std::memset(page.data(), 0, page.size());
    return;
  }
  for (size_t at = 0; at < page.size(); at += sizeof word) {
    std::memcpy(page.data() + at, &word, sizeof word);
  }
}

}  // namespace cswap
