#include "core/stats.h"

#include <algorithm>

namespace cswap {

void StatsShard::add_latency(Operation operation, uint64_t ns) {
  Histogram& histogram = latency_[static_cast<size_t>(operation)];
  const auto* bound = std::lower_bound(kLatencyBoundsNs.begin(), kLatencyBoundsNs.end(), ns);
  bump(histogram.buckets[static_cast<size_t>(bound - kLatencyBoundsNs.begin())], 1);
  bump(histogram.sum_ns, ns);
  if (ns > read(histogram.max_ns)) histogram.max_ns.store(ns, std::memory_order_relaxed);
}

void StatsShard::add_to(Operation operation, LatencySnapshot& sum) const {
  const Histogram& histogram = latency_[static_cast<size_t>(operation)];
  for (size_t i = 0; i < sum.buckets.size(); ++i) {
    const uint64_t n = read(histogram.buckets[i]);
    sum.buckets[i] += n;
    sum.count += n;
  }
  sum.sum_ns += read(histogram.sum_ns);
  sum.max_ns = std::max(sum.max_ns, read(histogram.max_ns));
}

TenantSnapshot sum_shards(std::span<const StatsShard> shards) {
  TenantSnapshot sum;
  std::array<int64_t, kEnumCount<Gauge>> gauges{};
  for (const StatsShard& shard : shards) {
    sum.notify_free += shard.get(Counter::kNotifyFree);
    sum.pool_limit_hit += shard.get(Counter::kPoolLimitHit);
    sum.reject_alloc_fail += shard.get(Counter::kRejectAllocFail);
    sum.reject_compress_poor += shard.get(Counter::kRejectCompressPoor);
    sum.decompress_fail += shard.get(Counter::kDecompressFail);
    for (size_t g = 0; g < gauges.size(); ++g) gauges[g] += shard.get(static_cast<Gauge>(g));
    for (uint32_t order = 0; order < kOrders; ++order) {
      sum.swpout[order] += shard.swpout(order);
      sum.swpout_fallback[order] += shard.swpout_fallback(order);
      sum.swpin[order] += shard.swpin(order);
    }
    for (size_t op = 0; op < sum.latency.size(); ++op) {
      shard.add_to(static_cast<Operation>(op), sum.latency[op]);
    }
  }
  // Reading races with writers, so the sum of a free seen and its store not yet seen can be
  // negative for a moment.
  const auto gauge = [&gauges](Gauge g) {
    return static_cast<uint64_t>(std::max<int64_t>(0, gauges[static_cast<size_t>(g)]));
  };
  sum.stored_pages = gauge(Gauge::kStoredPages);
  sum.same_pages = gauge(Gauge::kSamePages);
  sum.huge_pages = gauge(Gauge::kHugePages);
  sum.compr_data_size = gauge(Gauge::kComprBytes);
  sum.orig_data_size = sum.stored_pages << kPageShift;
  return sum;
}

}  // namespace cswap
