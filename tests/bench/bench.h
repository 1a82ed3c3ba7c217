// What the benchmarks share: a pool set up in the plugin's own words, the corpus as requests of any
// size, the bare codecs, and order statistics of recorded samples.
#pragma once

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "compress/codecs.h"
#include "core/check.h"
#include "core/pool.h"
#include "tests/support/corpus.h"

namespace cswap::bench {

using test::corpus_pages;
using test::Page;
using test::Random;

// Pages of a 64 KiB and of a 2 MiB request.
inline constexpr size_t kMthpPages = 16;
inline constexpr size_t kThpPages = 512;

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

// All the old ways at once.
inline constexpr const char* kOldSwitches = "alloc=global batch=off free=sync";

// `switches` as the plugin takes them, separated by spaces; what is not named is the new way.
inline PoolOptions pool_options(std::string_view codec, std::string_view switches) {
  PoolOptions options;
  options.codec = parse_codec(std::string(codec));
  if (options.codec == nullptr) fail("no codec '" + std::string(codec) + "'");
  while (!switches.empty()) {
    const std::string_view word = switches.substr(0, switches.find(' '));
    if (word == "alloc=global") {
      options.alloc = AllocMode::kGlobal;
    } else if (word == "batch=off") {
      options.batch = false;
    } else if (word == "free=sync") {
      options.free = FreeMode::kSync;
    } else if (word != "alloc=cluster" && word != "batch=on" && word != "free=async") {
      fail("no switch '" + std::string(word) + "'");
    }
    switches.remove_prefix(std::min(word.size() + 1, switches.size()));
  }
  return options;
}

// `pages` neighbours of the corpus, the first of them anywhere.
inline std::span<const std::byte> corpus_run(uint64_t first, size_t pages) {
  const size_t starts = corpus_pages().size() - pages + 1;
  return std::as_bytes(std::span(corpus_pages()).subspan(first % starts, pages));
}

// A pool with one tenant.
class Device {
 public:
  Device(std::string_view codec, std::string_view switches, uint64_t pages)
      : pages_(pages),
        pool_(pool_options(codec, switches), pages * kPageBytes),
        tenant_(pool_.add_tenant("", pages * kPageBytes)) {}

  [[nodiscard]] uint64_t pages() const { return pages_; }
  [[nodiscard]] Pool& pool() { return pool_; }

  void store(uint64_t page, std::span<const std::byte> data) {
    CSWAP_CHECK(pool_.store(tenant_, page * kPageBytes, data) == Status::kOk);
  }
  void load(uint64_t page, std::span<std::byte> data) {
    CSWAP_CHECK(pool_.load(tenant_, page * kPageBytes, data) == Status::kOk);
  }
  void discard(uint64_t page, uint64_t pages) {
    pool_.discard(tenant_, page * kPageBytes, pages * kPageBytes);
  }
  // Waits until all that was discarded or displaced is freed, by whoever is to free it, so that
  // nothing works beside what is measured next.
  void settle() {
    const auto waiting = [this] { return pool_.snapshot().free_waiting_objects > 0; };
    while (pool_.options().free == FreeMode::kAsync && waiting()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    pool_.drain_free_queues();
  }
  // Stores to [first, end) what nothing is measured of.
  void fill(uint64_t first, uint64_t end) {
    Random random(first);
    for (uint64_t page = first; page < end; page += kThpPages) {
      store(page, corpus_run(random(), std::min<uint64_t>(kThpPages, end - page)));
    }
  }

 private:
  const uint64_t pages_;
  Pool pool_;
  Tenant& tenant_;
};

// The codecs themselves, at the levels that the pool uses.
class BareLz4 {
 public:
  size_t compress(std::span<const std::byte> page) {
    const int length = LZ4_compress_default(reinterpret_cast<const char*>(page.data()), out_.data(),
                                            kPageBytes, static_cast<int>(out_.size()));
    return static_cast<size_t>(length);
  }
  // Of what compress() made last.
  [[nodiscard]] std::span<const char> compressed(size_t length) const {
    return std::span(out_).first(length);
  }
  static void decompress(std::span<const char> in, Page& page) {
    const int length = LZ4_decompress_safe(in.data(), reinterpret_cast<char*>(page.data()),
                                           static_cast<int>(in.size()), kPageBytes);
    CSWAP_CHECK(length == static_cast<int>(kPageBytes));
  }

 private:
  std::vector<char> out_ = std::vector<char>(LZ4_compressBound(kPageBytes));
};

class BareZstd {
 public:
  size_t compress(std::span<const std::byte> page) {
    return ZSTD_compressCCtx(context_.get(), out_.data(), out_.size(), page.data(), kPageBytes,
                             ZSTD_CLEVEL_DEFAULT);
  }

 private:
  std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context_{ZSTD_createCCtx(), ZSTD_freeCCtx};
  std::vector<char> out_ = std::vector<char>(ZSTD_compressBound(kPageBytes));
};

// Durations in nanoseconds, recorded without allocating.
class Samples {
 public:
  explicit Samples(size_t most = 0) : ns_(most), count_(0) {}

  // What does not fit is only counted as lost.
  void add(uint64_t ns) {
    if (count_ < ns_.size()) {
      ns_[count_++] = static_cast<uint32_t>(std::min<uint64_t>(ns, UINT32_MAX));
    } else {
      ++lost_;
    }
  }
  void append(const Samples& more) {
    ns_.resize(count_);
    ns_.insert(ns_.end(), more.ns_.begin(), more.ns_.begin() + static_cast<ptrdiff_t>(more.count_));
    count_ = ns_.size();
    lost_ += more.lost_;
  }
  [[nodiscard]] size_t count() const { return count_; }
  // As a JSON object, exact: nearest-rank percentiles, and the shares of E5's table.
  [[nodiscard]] std::string json() {
    if (lost_ > 0) fail("more samples than there was room for");
    std::sort(ns_.begin(), ns_.begin() + static_cast<ptrdiff_t>(count_));
    char text[400];
    std::snprintf(text, sizeof text,
                  "{\"count\": %zu, \"p50_ns\": %u, \"p99_ns\": %u, \"p999_ns\": %u, "
                  "\"p9999_ns\": %u, \"max_ns\": %u, \"below_20us\": %.9f, "
                  "\"below_100us\": %.9f, \"below_500us\": %.9f}",
                  count_, percentile(0.5), percentile(0.99), percentile(0.999), percentile(0.9999),
                  percentile(1), share_below(20'000), share_below(100'000), share_below(500'000));
    return text;
  }

 private:
  [[nodiscard]] uint32_t percentile(double share) const {
    if (count_ == 0) return 0;
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(count_)));
    return ns_[std::max<size_t>(rank, 1) - 1];
  }
  [[nodiscard]] double share_below(uint32_t ns) const {
    const auto end = ns_.begin() + static_cast<ptrdiff_t>(count_);
    const auto below = std::lower_bound(ns_.begin(), end, ns) - ns_.begin();
    return count_ == 0 ? 0 : static_cast<double>(below) / static_cast<double>(count_);
  }

  std::vector<uint32_t> ns_;  // the rest of it is zeroes, already resident
  size_t count_;
  uint64_t lost_ = 0;
};

}  // namespace cswap::bench
