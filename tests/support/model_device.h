// A pool with one device, and beside it the plain bytes that the device must hold and the gauges
// that follow from them. Shared by unit tests, stress tests and fuzz targets.
//
// With batch=off a store that fails may have stored some of its pages: the model learns from the
// slot words how many, and checks that they are the first ones.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compress/codecs.h"
#include "compress/same_filled.h"
#include "core/check.h"
#include "core/page_codec.h"
#include "core/pool.h"
#include "tests/support/corpus.h"
#include "tests/support/switches.h"

namespace cswap::test {

// With the switches that the tests run under.
[[nodiscard]] inline PoolOptions options_for(const std::string& codec, bool checksum = false,
                                             uint64_t mem_limit_bytes = 0) {
  PoolOptions options;
  options.codec = parse_codec(codec);
  CSWAP_CHECK(options.codec != nullptr);
  options.checksum = checksum;
  options.mem_limit_bytes = mem_limit_bytes;
  options.alloc = test_switches().alloc;
  options.batch = test_switches().batch;
  options.free = test_switches().free;
  return options;
}

// What a page may be stored as.
enum class PageKind { kAbsent, kZero, kSame, kSameObject, kCompressed, kRaw };
inline constexpr size_t kPageKinds = 6;

// Content that a store keeps as `kind`; for kAbsent, zeroes. The first byte of same-filled pages is
// always zero, so that a write of all other bytes leads from one to the other.
[[nodiscard]] inline Page page_of(PageKind kind, uint64_t seed) {
  Page page{};
  switch (kind) {
    case PageKind::kAbsent:
    case PageKind::kZero:
      break;
    case PageKind::kSame:
      fill_with_word(page, 0x0001010101010100 * (1 + seed % 15));
      break;
    case PageKind::kSameObject:
      fill_with_word(page, 0x7fff000000000000 + (seed << 8));
      break;
    case PageKind::kCompressed:
      return stamped_page(seed, seed + 1);
    case PageKind::kRaw:
      return random_page(seed);
  }
  return page;
}

[[nodiscard]] inline std::vector<std::byte> bytes_of(std::span<const Page> pages) {
  const auto bytes = std::as_bytes(pages);
  return {bytes.begin(), bytes.end()};
}

struct Gauges {
  uint64_t stored_pages = 0;
  uint64_t same_pages = 0;
  uint64_t huge_pages = 0;
  uint64_t compr_data_size = 0;
  bool operator==(const Gauges&) const = default;
};

class ModelDevice {
 public:
  ModelDevice(const PoolOptions& options, uint64_t pages)
      : pool_(options, pages * kPageBytes),
        tenant_(pool_.add_tenant("", pages * kPageBytes)),
        codec_(options.codec->make_context()),
        bytes_(pages * kPageBytes),
        present_(pages) {}

  [[nodiscard]] Pool& pool() { return pool_; }
  [[nodiscard]] Tenant& tenant() { return tenant_; }
  [[nodiscard]] uint64_t pages() const { return present_.size(); }
  [[nodiscard]] std::span<const std::byte> page(uint64_t index) const {
    return std::span(bytes_).subspan(index * kPageBytes, kPageBytes);
  }

  Status store(uint64_t offset, std::span<const std::byte> data) {
    const uint64_t first = offset / kPageBytes;
    std::vector<SlotWord> before;
    if (!pool_.options().batch) before = words(first, offset + data.size());
    const Status status = pool_.store(tenant_, offset, data);
    stored_prefix_ = 0;
    if (data.empty()) return status;
    if (status == Status::kOk) {
      note_stored(offset, data);
      stored_prefix_ = words(first, offset + data.size()).size();
    } else if (!pool_.options().batch) {
      stored_prefix_ = prefix_stored(offset, data, before);
      const uint64_t end = (first + stored_prefix_) * kPageBytes;
      if (end > offset) note_stored(offset, data.first(end - offset));
    }
    return status;
  }
  // How many pages of the last store were stored; all, or none, with batch=on.
  [[nodiscard]] uint64_t stored_prefix() const { return stored_prefix_; }

  Status store_page(uint64_t index, const Page& page) { return store(index * kPageBytes, page); }
  // Stores a page of this kind, or discards it.
  Status make(uint64_t index, PageKind kind, uint64_t seed) {
    if (kind != PageKind::kAbsent) return store_page(index, page_of(kind, seed));
    discard(index * kPageBytes, kPageBytes);
    return Status::kOk;
  }

  Status zero(uint64_t offset, uint64_t length) {
    const Status status = pool_.zero(tenant_, offset, length);
    if (status != Status::kOk) return status;
    for (uint64_t at = offset; at < offset + length;) {
      const uint64_t index = at / kPageBytes;
      const uint64_t end = std::min(offset + length, (index + 1) * kPageBytes);
      // A page covered in part stays what it is, unless nothing is stored or it reads as zeroes.
      if (end - at == kPageBytes) present_[index] = false;
      std::fill(bytes_.begin() + static_cast<ptrdiff_t>(at),
                bytes_.begin() + static_cast<ptrdiff_t>(end), std::byte{0});
      at = end;
    }
    return status;
  }

  void discard(uint64_t offset, uint64_t length) {
    pool_.discard(tenant_, offset, length);
    const uint64_t end = (offset + length) / kPageBytes;
    for (uint64_t i = (offset + kPageBytes - 1) / kPageBytes; i < end; ++i) {
      std::fill_n(bytes_.begin() + static_cast<ptrdiff_t>(i * kPageBytes), kPageBytes,
                  std::byte{0});
      present_[i] = false;
    }
  }

  // Whether a load of the range gives what was written last.
  [[nodiscard]] bool matches(uint64_t offset, uint64_t length) {
    std::vector<std::byte> read(length, std::byte{0x5a});
    if (pool_.load(tenant_, offset, read) != Status::kOk) return false;
    return length == 0 || std::memcmp(read.data(), bytes_.data() + offset, length) == 0;
  }
  [[nodiscard]] bool matches() { return matches(0, bytes_.size()); }

  // Whether extents of the range cover it in order, and call hole exactly what is known to be zero
  // without looking at an object.
  [[nodiscard]] bool extents_match(uint64_t offset, uint64_t length) {
    uint64_t at = offset;
    bool right = true;
    pool_.extents(tenant_, offset, length, [&](uint64_t from, uint64_t bytes, bool hole) {
      right = right && from == at && bytes > 0 && from + bytes <= offset + length;
      for (uint64_t i = from / kPageBytes; right && i * kPageBytes < from + bytes; ++i) {
        right = hole == (kind(i) == PageKind::kAbsent || kind(i) == PageKind::kZero);
      }
      at = from + bytes;
      return right;
    });
    return right && at == offset + length;
  }

  // As what the pool must keep the page.
  [[nodiscard]] PageKind kind(uint64_t index) {
    if (!present_[index]) return PageKind::kAbsent;
    if (pool_.options().same_filled) {
      if (const auto word = repeated_word(page(index))) {
        if (*word == 0) return PageKind::kZero;
        return SlotWord::same(*word) ? PageKind::kSame : PageKind::kSameObject;
      }
    }
    return compressed_bytes(index) > 0 ? PageKind::kCompressed : PageKind::kRaw;
  }

  [[nodiscard]] Gauges expected() {
    Gauges gauges;
    for (uint64_t i = 0; i < pages(); ++i) {
      const PageKind k = kind(i);
      gauges.stored_pages += k != PageKind::kAbsent;
      gauges.same_pages +=
          k == PageKind::kZero || k == PageKind::kSame || k == PageKind::kSameObject;
      gauges.huge_pages += k == PageKind::kRaw;
      if (k == PageKind::kSameObject) gauges.compr_data_size += sizeof(uint64_t);
      if (k == PageKind::kCompressed) gauges.compr_data_size += compressed_bytes(i);
      if (k == PageKind::kRaw) gauges.compr_data_size += kPageBytes;
    }
    return gauges;
  }
  [[nodiscard]] TenantSnapshot counts() const { return pool_.snapshot().tenants[0]; }
  [[nodiscard]] Gauges gauges() const {
    const TenantSnapshot sum = counts();
    return {sum.stored_pages, sum.same_pages, sum.huge_pages, sum.compr_data_size};
  }

  // Content, gauges, and every invariant of the pool.
  [[nodiscard]] bool all_right() {
    pool_.check_invariants(2);
    return matches() && gauges() == expected() && extents_match(0, bytes_.size());
  }

 private:
  void note_stored(uint64_t offset, std::span<const std::byte> data) {
    std::copy(data.begin(), data.end(), bytes_.begin() + static_cast<ptrdiff_t>(offset));
    for (uint64_t i = offset / kPageBytes; i * kPageBytes < offset + data.size(); ++i) {
      present_[i] = true;
    }
  }

  // The words of the pages from `first` to the one with the byte before `end`.
  [[nodiscard]] std::vector<SlotWord> words(uint64_t first, uint64_t end) {
    std::vector<SlotWord> result;
    for (uint64_t i = first; i * kPageBytes < end; ++i) {
      result.push_back(tenant_.slots().peek({i}));
    }
    return result;
  }

  // How many pages of a store that failed have been stored. A new object is never in the place of
  // the one that it replaces, so a page whose word is what it was is the same either way, or old.
  [[nodiscard]] uint64_t prefix_stored(uint64_t offset, std::span<const std::byte> data,
                                       std::span<const SlotWord> before) {
    const std::vector<SlotWord> after = words(offset / kPageBytes, offset + data.size());
    uint64_t stored = 0;
    bool ended = false;
    for (size_t i = 0; i < after.size(); ++i) {
      if (after[i] != before[i]) {
        CSWAP_CHECK(!ended);
        stored = i + 1;
        continue;
      }
      const uint64_t start = std::max(offset, (offset / kPageBytes + i) * kPageBytes);
      const uint64_t end =
          std::min(offset + data.size(), (offset / kPageBytes + i + 1) * kPageBytes);
      ended = ended || !std::equal(data.begin() + static_cast<ptrdiff_t>(start - offset),
                                   data.begin() + static_cast<ptrdiff_t>(end - offset),
                                   bytes_.begin() + static_cast<ptrdiff_t>(start));
    }
    return stored;
  }

  [[nodiscard]] size_t compressed_bytes(uint64_t index) {
    std::array<std::byte, kMaxCompressedBytes> out;
    return codec_->compress(page(index), out);
  }

  Pool pool_;
  Tenant& tenant_;
  const std::unique_ptr<CodecContext> codec_;  // the model's own
  std::vector<std::byte> bytes_;
  std::vector<bool> present_;  // whether the page has a word that is not empty
  uint64_t stored_prefix_ = 0;
};

}  // namespace cswap::test
