// What several of the integration tests need beside a server and a connection.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tests/support/corpus.h"
#include "tests/support/nbd_client.h"
#include "tests/support/nbd_server.h"

namespace cswap::test {

using Bytes = std::vector<std::byte>;

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

// `full` in a build of its own, less under a sanitizer.
[[nodiscard]] constexpr uint64_t scaled(uint64_t full, uint64_t sanitized) {
  return kSanitized ? sanitized : full;
}

[[nodiscard]] inline Bytes random_bytes(size_t length, uint64_t seed) {
  Random random(seed);
  Bytes bytes(length);
  for (size_t at = 0; at < length; at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, std::min(sizeof word, length - at));
  }
  return bytes;
}

// Pages that compress well and differ from each other and from those of another `generation`.
[[nodiscard]] inline Bytes stamped_bytes(uint64_t first_page, uint64_t pages, uint64_t generation) {
  Bytes bytes(pages * kPageBytes);
  for (uint64_t i = 0; i < pages; ++i) {
    const Page page = stamped_page(first_page + i, generation);
    std::memcpy(bytes.data() + i * kPageBytes, page.data(), kPageBytes);
  }
  return bytes;
}

[[nodiscard]] inline bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

[[nodiscard]] inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

[[nodiscard]] inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace cswap::test
