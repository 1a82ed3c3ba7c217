// Counters, gauges and latency histograms, sharded so that request threads share no cache line.
//
// Thread safety: a shard belongs to one Worker and is written only by the thread that holds that
// Worker; everything is a relaxed atomic, so a reader never stops a writer. A sum over shards is
// not a snapshot of one instant: a gauge may be off by the requests in flight.
//
// Names are those of zram, zswap and the kernel's vmstat (Documentation/admin-guide/blockdev/zram,
// mm/zswap.c, hugepages-*/stats), so that people recognise them.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/lock_stats.h"
#include "core/types.h"

namespace cswap {

// Monotonic; never falls while the process lives.
enum class Counter : uint32_t {
  kNotifyFree,          // pages whose slot a trim emptied
  kPoolLimitHit,        // write and zero requests refused for the limit
  kRejectAllocFail,     // write and zero requests refused because memory could not be had
  kRejectCompressPoor,  // pages stored raw because they did not shrink
  kDecompressFail,      // pages that could not be produced: damaged object
  kCount
};

// May fall. A shard's part may be negative: a page stored by one Worker is freed by another.
enum class Gauge : uint32_t {
  kStoredPages,  // pages with content: compressed, raw or same-filled
  kSamePages,    // of these, same-filled
  kHugePages,    // of these, stored raw
  kComprBytes,   // exact bytes of all objects, without rounding to the size class
  kCount
};

// What a request does. Frees, which no request waits for, are timed by the pool.
enum class Operation : uint32_t { kStore, kLoad, kDiscard, kCount };

template <typename Enum>
inline constexpr size_t kEnumCount = static_cast<size_t>(Enum::kCount);

inline constexpr std::array<const char*, kEnumCount<Operation>> kOperationNames = {"store", "load",
                                                                                   "discard"};

// Upper bounds of the latency buckets, in nanoseconds; one more bucket takes all above the last.
inline constexpr std::array<uint64_t, 15> kLatencyBoundsNs = {
    1'000,   2'000,     5'000,     10'000,    20'000,     50'000,      100'000,      200'000,
    500'000, 1'000'000, 2'000'000, 5'000'000, 10'000'000, 100'000'000, 1'000'000'000};

struct LatencySnapshot {
  std::array<uint64_t, kLatencyBoundsNs.size() + 1> buckets{};  // not cumulative; last is +Inf
  uint64_t count = 0;
  uint64_t sum_ns = 0;
  uint64_t max_ns = 0;

  LatencySnapshot& operator+=(const LatencySnapshot& more);
};

// By the order of the request, see order_of().
using LatencyByOrder = std::array<LatencySnapshot, kOrders>;
[[nodiscard]] LatencySnapshot sum_of(const LatencyByOrder& latency);

// A cell with one writer at a time, so that no read-modify-write instruction is needed.
class StatsCell {
 public:
  void add(uint64_t n) { cell_.store(get() + n, std::memory_order_relaxed); }
  void raise_to(uint64_t n) {
    if (n > get()) cell_.store(n, std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t get() const { return cell_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> cell_{0};
};

class LatencyHistogram {
 public:
  void add(uint64_t ns);
  void add_to(LatencySnapshot& sum) const;

 private:
  std::array<StatsCell, kLatencyBoundsNs.size() + 1> buckets_;
  StatsCell sum_ns_;
  StatsCell max_ns_;
};

// What one Worker counted for one tenant.
class alignas(64) StatsShard {
 public:
  void add(Counter counter, uint64_t n = 1) { counters_[static_cast<size_t>(counter)].add(n); }
  void add(Gauge gauge, int64_t n) {
    gauges_[static_cast<size_t>(gauge)].add(static_cast<uint64_t>(n));
  }
  // Runs of pages, counted as the fewest powers of two that they are the sum of: the pages are the
  // sum of each order's count times its size. A run stored as a whole, one stored page by page,
  // and one loaded.
  void add_swpout(uint64_t pages) { add_run(swpout_, pages); }
  void add_swpout_page_by_page(uint64_t pages);
  void add_swpin(uint64_t pages) { add_run(swpin_, pages); }
  void add_latency(Operation operation, uint32_t order, uint64_t ns) {
    latency_[static_cast<size_t>(operation)][order].add(ns);
  }

  [[nodiscard]] uint64_t get(Counter c) const { return counters_[static_cast<size_t>(c)].get(); }
  [[nodiscard]] int64_t get(Gauge g) const {
    return static_cast<int64_t>(gauges_[static_cast<size_t>(g)].get());
  }
  [[nodiscard]] uint64_t swpout(uint32_t order) const { return swpout_[order].get(); }
  [[nodiscard]] uint64_t swpout_fallback(uint32_t o) const { return swpout_fallback_[o].get(); }
  [[nodiscard]] uint64_t swpin(uint32_t order) const { return swpin_[order].get(); }
  void add_to(Operation operation, LatencyByOrder& sum) const;

 private:
  using Orders = std::array<StatsCell, kOrders>;
  static void add_run(Orders& cells, uint64_t pages);

  std::array<StatsCell, kEnumCount<Counter>> counters_;
  std::array<StatsCell, kEnumCount<Gauge>> gauges_;
  Orders swpout_;
  Orders swpout_fallback_;
  Orders swpin_;
  std::array<std::array<LatencyHistogram, kOrders>, kEnumCount<Operation>> latency_;
};

struct TenantSnapshot {
  std::string name;  // of the export; any bytes
  uint64_t size_bytes = 0;
  uint64_t stored_pages = 0;
  uint64_t same_pages = 0;
  uint64_t huge_pages = 0;
  uint64_t orig_data_size = 0;   // bytes: stored_pages in full
  uint64_t compr_data_size = 0;  // bytes
  uint64_t notify_free = 0;
  uint64_t pool_limit_hit = 0;
  uint64_t reject_alloc_fail = 0;
  uint64_t reject_compress_poor = 0;
  uint64_t decompress_fail = 0;
  uint64_t written_back_pages = 0;
  std::array<uint64_t, kOrders> swpout{};
  std::array<uint64_t, kOrders> swpout_fallback{};
  std::array<uint64_t, kOrders> swpin{};
  std::array<LatencyByOrder, kEnumCount<Operation>> latency{};
};

struct PoolSnapshot {
  std::string compressor;        // as given: "lz4", "zstd:3"
  uint64_t mem_used_total = 0;   // bytes resident: objects and metadata
  uint64_t mem_used_max = 0;     // bytes, the peak of mem_used_total
  uint64_t mem_limit = 0;        // bytes, 0 for none
  uint64_t pool_total_size = 0;  // bytes resident for objects alone
  uint64_t metadata_size = 0;    // bytes resident for slot tables and allocator
  uint64_t headroom = 0;         // bytes that may still be used before the limit; limit - used
  bool limit_reached = false;    // refusing new pages until below accept_threshold
  uint64_t pages_compacted = 0;
  uint64_t workers = 0;  // request contexts made so far
  // The switches, as their parameters are given.
  std::string alloc = "cluster";
  std::string batch = "on";
  std::string free = "async";
  // Objects that no page needs any more, and whose memory still waits to be freed.
  uint64_t free_waiting_objects = 0;
  uint64_t free_waiting_bytes = 0;  // rounded up to size classes
  // Objects freed so far: by the request that displaced them or found them waiting, or not.
  uint64_t freed_in_request = 0;
  uint64_t freed_in_background = 0;
  // Places that Workers hold ready (alloc=global).
  uint64_t slot_cache_bytes = 0;
  // Time to free a batch, by the order of its number of objects.
  LatencyByOrder free_latency{};
  std::vector<LockSnapshot> locks;  // of the process
  std::vector<TenantSnapshot> tenants;
};

// Sums the shards of one tenant into what can be summed; name and size are the caller's.
[[nodiscard]] TenantSnapshot sum_shards(std::span<const StatsShard> shards);

}  // namespace cswap
