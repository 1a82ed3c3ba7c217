// What this process keeps in memory, and what the sanitizer that it runs under keeps from testing.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/types.h"

namespace cswap::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kUnderTsan = true;
#else
inline constexpr bool kUnderTsan = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kUnderAsan = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kUnderAsan = true;
#else
inline constexpr bool kUnderAsan = false;
#endif
#else
inline constexpr bool kUnderAsan = false;
#endif
inline constexpr bool kUnderSanitizer = kUnderTsan || kUnderAsan;

// TSan has no shadow for the tens of TiB of address space that the largest devices reserve.
inline constexpr bool kHasSmallAddressSpace = kUnderTsan;

// The codecs that a test tries: the first, under TSan, where each takes ten times as long.
[[nodiscard]] inline std::vector<std::string> codecs_to_try(std::vector<std::string> codecs) {
  if (kUnderTsan) codecs.resize(1);
  return codecs;
}

// Resident bytes of this process.
[[nodiscard]] inline uint64_t own_resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size_pages = 0;
  uint64_t resident_pages = 0;
  statm >> size_pages >> resident_pages;
  return resident_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Resident bytes of whole pages of this process.
[[nodiscard]] inline uint64_t resident_bytes(std::span<std::byte> memory) {
  std::vector<unsigned char> pages(memory.size() / kPageBytes);
  CSWAP_CHECK(mincore(memory.data(), memory.size(), pages.data()) == 0);
  uint64_t resident = 0;
  for (const unsigned char page : pages) resident += page & 1;
  return resident * kPageBytes;
}

}  // namespace cswap::test
