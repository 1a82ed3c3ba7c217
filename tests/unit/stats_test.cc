#include "core/stats.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/support/model_device.h"

namespace cswap {
namespace {

TEST_CASE("a sum over shards adds what each counted and keeps the largest maximum") {
  std::vector<StatsShard> shards(3);
  for (uint64_t i = 0; i < 3; ++i) {
    shards[i].add(Counter::kNotifyFree, i + 1);
    shards[i].add(Counter::kPoolLimitHit);
    shards[i].add(Counter::kRejectAllocFail, 10);
    shards[i].add(Counter::kRejectCompressPoor, 2);
    shards[i].add(Counter::kDecompressFail, 3);
    shards[i].add_swpout(i % 2 == 0 ? 5 : 2);
    shards[i].add_swpout_page_by_page(7);
    shards[i].add_swpin(16);
    shards[i].add_latency(Operation::kLoad, i % 2 == 0 ? 0 : 4, 1000 * (i + 1));
  }
  const TenantSnapshot sum = sum_shards(shards);
  CHECK(sum.notify_free == 6);
  CHECK(sum.pool_limit_hit == 3);
  CHECK(sum.reject_alloc_fail == 30);
  CHECK(sum.reject_compress_poor == 6);
  CHECK(sum.decompress_fail == 9);
  CHECK(sum.swpout == std::array<uint64_t, kOrders>{2 + 21, 1, 2});
  CHECK(sum.swpout_fallback == std::array<uint64_t, kOrders>{0, 3, 3});
  CHECK(sum.swpin == std::array<uint64_t, kOrders>{0, 0, 0, 0, 3});
  const LatencyByOrder& loads = sum.latency[static_cast<size_t>(Operation::kLoad)];
  CHECK(loads[0].count == 2);
  CHECK(loads[0].max_ns == 3000);
  CHECK(loads[4].count == 1);
  CHECK(loads[4].sum_ns == 2000);
  CHECK(sum_of(loads).count == 3);
  CHECK(sum_of(loads).sum_ns == 6000);
  CHECK(sum_of(loads).max_ns == 3000);
  CHECK(sum_of(sum.latency[static_cast<size_t>(Operation::kStore)]).count == 0);
}

TEST_CASE("a run of pages is counted in the orders that it is the sum of") {
  CHECK(order_of(1) == 0);
  CHECK(order_of(3) == 1);
  CHECK(order_of(511) == 8);
  CHECK(order_of(512) == 9);
  CHECK(order_of(16384) == 9);
  for (const uint64_t pages : {1u, 2u, 3u, 16u, 511u, 512u, 1023u, 16384u, 16385u}) {
    StatsShard shard;
    shard.add_swpout(pages);
    uint64_t sum = 0;
    for (uint32_t order = 0; order < kOrders; ++order) sum += shard.swpout(order) << order;
    CHECK(sum == pages);
    CHECK(shard.swpout(order_of(pages)) > 0);
  }
}

TEST_CASE("a page stored by one worker and freed by another leaves the sum right") {
  std::vector<StatsShard> shards(2);
  shards[0].add(Gauge::kStoredPages, 10);
  shards[1].add(Gauge::kStoredPages, -7);
  shards[0].add(Gauge::kComprBytes, 5000);
  shards[1].add(Gauge::kComprBytes, -4000);
  const TenantSnapshot sum = sum_shards(shards);
  CHECK(sum.stored_pages == 3);
  CHECK(sum.orig_data_size == 3 * kPageBytes);
  CHECK(sum.compr_data_size == 1000);
}

TEST_CASE("a gauge that is below zero for a moment reads as zero") {
  std::vector<StatsShard> shards(1);
  shards[0].add(Gauge::kSamePages, -1);
  CHECK(sum_shards(shards).same_pages == 0);
}

TEST_CASE("no shards and an empty histogram are all zero") {
  const TenantSnapshot sum = sum_shards({});
  CHECK(sum.stored_pages == 0);
  for (const LatencyByOrder& by_order : sum.latency) {
    const LatencySnapshot latency = sum_of(by_order);
    CHECK(latency.count == 0);
    CHECK(latency.sum_ns == 0);
    CHECK(latency.max_ns == 0);
  }
}

// O26.
TEST_CASE("latencies from 1 ns to 3 h are all counted, the longest above every bound") {
  std::vector<StatsShard> shards(1);
  constexpr uint64_t kThreeHoursNs = uint64_t{3} * 3600 * 1'000'000'000;
  uint64_t total = 0;
  for (const uint64_t ns : {uint64_t{1}, uint64_t{1'000}, uint64_t{1'000'000'000},
                            uint64_t{100'000'000'000}, kThreeHoursNs}) {
    shards[0].add_latency(Operation::kStore, 0, ns);
    total += ns;
  }
  const LatencySnapshot latency = sum_shards(shards).latency[0][0];
  CHECK(latency.count == 5);
  CHECK(latency.max_ns == kThreeHoursNs);
  CHECK(latency.sum_ns == total);
  CHECK(latency.buckets.front() == 2);
  CHECK(latency.buckets[latency.buckets.size() - 2] == 1);  // 1 s is not above its bound
  CHECK(latency.buckets.back() == 2);
}

TEST_CASE("a latency at a bound belongs to it and one nanosecond more to the next") {
  for (size_t i = 0; i < kLatencyBoundsNs.size(); ++i) {
    std::vector<StatsShard> shards(1);
    shards[0].add_latency(Operation::kDiscard, 0, kLatencyBoundsNs[i]);
    shards[0].add_latency(Operation::kDiscard, 0, kLatencyBoundsNs[i] + 1);
    const LatencySnapshot latency = sum_shards(shards).latency[2][0];
    CHECK(latency.buckets[i] == 1);
    CHECK(latency.buckets[i + 1] == 1);
  }
  CHECK(std::is_sorted(kLatencyBoundsNs.begin(), kLatencyBoundsNs.end()));
}

TEST_CASE("reading never stops writers, and no counter ever falls") {
  Pool pool(test::options_for("lz4"), 64 * kPageBytes);
  Tenant& tenant = pool.add_tenant("", 64 * kPageBytes);
  constexpr uint64_t kRequests = 3000;
  std::atomic<bool> done{false};
  std::thread reader([&] {
    PoolSnapshot last = pool.snapshot();
    while (!done.load()) {
      const PoolSnapshot now = pool.snapshot();
      const TenantSnapshot& a = last.tenants[0];
      const TenantSnapshot& b = now.tenants[0];
      if (b.swpout[0] < a.swpout[0] || b.swpin[0] < a.swpin[0] || b.notify_free < a.notify_free ||
          sum_of(b.latency[0]).count < sum_of(a.latency[0]).count ||
          now.mem_used_max < last.mem_used_max) {
        std::abort();
      }
      last = now;
    }
  });
  std::vector<std::thread> writers;
  for (uint64_t t = 0; t < 3; ++t) {
    writers.emplace_back([&, t] {
      test::Page page = test::stamped_page(t, 0);
      for (uint64_t i = 0; i < kRequests; ++i) {
        const uint64_t offset = (t * 16 + i % 16) * kPageBytes;
        if (pool.store(tenant, offset, page) != Status::kOk) std::abort();
        if (pool.load(tenant, offset, page) != Status::kOk) std::abort();
        pool.discard(tenant, offset, kPageBytes);
      }
    });
  }
  for (auto& writer : writers) writer.join();
  done = true;
  reader.join();
  const TenantSnapshot sum = pool.snapshot().tenants[0];
  CHECK(sum.swpout[0] == 3 * kRequests);
  CHECK(sum.swpin[0] == 3 * kRequests);
  CHECK(sum.notify_free == 3 * kRequests);
  CHECK(sum.stored_pages == 0);
  for (const auto& latency : sum.latency) CHECK(latency[0].count == 3 * kRequests);
}

}  // namespace
}  // namespace cswap
