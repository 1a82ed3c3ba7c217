// Anonymous memory that is reserved whole and becomes resident page by page when touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cswap {

class Mapping {
 public:
  // Reserves `bytes` (rounded up to a page), all zero. Not counted against the machine's memory
  // until touched, never in transparent huge pages (one touched byte would cost 2 MiB), and left
  // out of core dumps, since swapped pages are secret. Throws std::system_error whose text names
  // `purpose`, the size and the remedy.
  Mapping(size_t bytes, const char* purpose);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size_bytes() const { return bytes_; }

  template <typename T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data_);
  }

  // Gives whole pages back to the OS, also when they are locked; they read as zero afterwards.
  // Both arguments are in bytes and multiples of a page. Thread-safe for disjoint ranges.
  void release(size_t offset, size_t bytes) const;

  // As release(), for several ranges. At once where the kernel can (process_madvise() on the own
  // process, from 6.13 on), which spares it most of the flushes that a call for each costs.
  struct Range {
    size_t offset;
    size_t bytes;
  };
  static constexpr size_t kMaxRanges = 64;
  void release_all(std::span<const Range> ranges) const;

  // Makes whole pages resident at once, which is cheaper than a fault for each. An attempt: where
  // the kernel cannot, they become resident when touched.
  void populate(size_t offset, size_t bytes) const;

  // Bytes of the mapping that are resident now. Slow; for tests.
  [[nodiscard]] size_t resident_bytes() const;

 private:
  std::byte* data_;
  size_t bytes_;
};

}  // namespace cswap
