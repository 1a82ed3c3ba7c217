#include "core/stats.h"

#include <algorithm>

namespace cswap {

LatencySnapshot& LatencySnapshot::operator+=(const LatencySnapshot& more) {
  for (size_t i = 0; i < buckets.size(); ++i) buckets[i] += more.buckets[i];
  count += more.count;
  sum_ns += more.sum_ns;
  max_ns = std::max(max_ns, more.max_ns);
  return *this;
}

LatencySnapshot sum_of(const LatencyByOrder& latency) {
  LatencySnapshot sum;
  for (const LatencySnapshot& of_order : latency) sum += of_order;
  return sum;
}

void LatencyHistogram::add(uint64_t ns) {
  const auto* bound = std::lower_bound(kLatencyBoundsNs.begin(), kLatencyBoundsNs.end(), ns);
  buckets_[static_cast<size_t>(bound - kLatencyBoundsNs.begin())].add(1);
  sum_ns_.add(ns);
  max_ns_.raise_to(ns);
}

void LatencyHistogram::add_to(LatencySnapshot& sum) const {
  for (size_t i = 0; i < sum.buckets.size(); ++i) {
    const uint64_t n = buckets_[i].get();
    sum.buckets[i] += n;
    sum.count += n;
  }
  sum.sum_ns += sum_ns_.get();
  sum.max_ns = std::max(sum.max_ns, max_ns_.get());
}

void StatsShard::add_run(Orders& cells, uint64_t pages) {
  constexpr uint32_t kTop = kOrders - 1;
  if (pages >> kTop != 0) cells[kTop].add(pages >> kTop);
  for (uint64_t rest = pages & ((1u << kTop) - 1); rest != 0; rest &= rest - 1) {
    cells[static_cast<size_t>(std::countr_zero(rest))].add(1);
  }
}

void StatsShard::add_swpout_page_by_page(uint64_t pages) {
  swpout_[0].add(pages);
  if (pages > 1) add_run(swpout_fallback_, pages & ~uint64_t{1});
}

void StatsShard::add_to(Operation operation, LatencyByOrder& sum) const {
  const auto& by_order = latency_[static_cast<size_t>(operation)];
  for (size_t order = 0; order < kOrders; ++order) by_order[order].add_to(sum[order]);
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
