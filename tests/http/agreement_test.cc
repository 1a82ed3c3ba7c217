// Prometheus text and JSON show the same numbers, and those of a real pool add up.
#include <doctest/doctest.h>

#include <atomic>
#include <boost/json/value.hpp>
#include <boost/json/value_to.hpp>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "compress/codecs.h"
#include "core/pool.h"
#include "plugin/stats_format.h"
#include "tests/http/exposition.h"
#include "tests/http/snapshots.h"

namespace cswap::test {
namespace {

using Json = boost::json::value;
using Labels = Exposition::Labels;

struct Names {
  const char* metric;
  const char* json;
};

constexpr Names kPoolNames[] = {{"cswap_mem_used_total_bytes", "mem_used_total"},
                                {"cswap_mem_used_max_bytes", "mem_used_max"},
                                {"cswap_mem_limit_bytes", "mem_limit"},
                                {"cswap_pool_total_size_bytes", "pool_total_size"},
                                {"cswap_metadata_size_bytes", "metadata_size"},
                                {"cswap_headroom_bytes", "headroom"},
                                {"cswap_pages_compacted_total", "pages_compacted"},
                                {"cswap_workers", "workers"},
                                {"cswap_free_waiting_objects", "free_waiting_objects"},
                                {"cswap_free_waiting_bytes", "free_waiting_bytes"},
                                {"cswap_slot_cache_bytes", "slot_cache_bytes"}};
// Of a tenant.
constexpr Names kTenantNames[] = {{"cswap_size_bytes", "size"},
                                  {"cswap_stored_pages", "stored_pages"},
                                  {"cswap_same_pages", "same_pages"},
                                  {"cswap_huge_pages", "huge_pages"},
                                  {"cswap_orig_data_size_bytes", "orig_data_size"},
                                  {"cswap_compr_data_size_bytes", "compr_data_size"},
                                  {"cswap_notify_free_pages_total", "notify_free"},
                                  {"cswap_pool_limit_hit_total", "pool_limit_hit"},
                                  {"cswap_reject_alloc_fail_total", "reject_alloc_fail"},
                                  {"cswap_reject_compress_poor_total", "reject_compress_poor"},
                                  {"cswap_decompress_fail_total", "decompress_fail"},
                                  {"cswap_written_back_pages_total", "written_back_pages"}};
constexpr Names kOrderNames[] = {{"cswap_swpout_total", "swpout"},
                                 {"cswap_swpout_fallback_total", "swpout_fallback"},
                                 {"cswap_swpin_total", "swpin"}};
constexpr Names kLockCounts[] = {{"cswap_lock_acquired_total", "acquired"},
                                 {"cswap_lock_contended_total", "contended"}};
constexpr Names kLockWaits[] = {{"cswap_lock_wait_seconds_total", "total_wait_ns"},
                                {"cswap_lock_wait_max_seconds", "max_wait_ns"},
                                {"cswap_lock_wait_min_seconds", "min_wait_ns"},
                                {"cswap_lock_wait_avg_seconds", "avg_wait_ns"}};

std::string string_at(const Json& object, const char* key) {
  return boost::json::value_to<std::string>(object.at(key));
}

// Compares both forms of one snapshot, and in the end that nothing was left out.
class Agreement {
 public:
  explicit Agreement(const PoolSnapshot& pool)
      : text_(parse_exposition(format_prometheus(pool))), json_(parsed_json(pool)) {}

  void check() {
    check_pool();
    for (const Json& tenant : json_.at("tenants").as_array()) check_tenant(tenant);
    for (const Json& lock : json_.at("locks").as_array()) {
      const Labels labels = {{"class", string_at(lock, "class")}};
      for (const Names& row : kLockCounts) same(row.metric, labels, lock.at(row.json));
      for (const Names& row : kLockWaits) same_ns(row.metric, labels, lock.at(row.json));
    }
    for (const auto& sample : text_.samples) {
      CAPTURE(sample.first.first);
      CHECK(compared_.contains(sample.first));
    }
  }

 private:
  double sample(const std::string& name, const Labels& labels) {
    CAPTURE(name);
    compared_.insert({name, labels});
    REQUIRE(text_.samples.contains({name, labels}));
    return text_.value(name, labels);
  }
  void same(const std::string& name, const Labels& labels, const Json& number) {
    CAPTURE(name);
    CHECK(sample(name, labels) == number.to_number<double>());
  }
  void same_ns(const std::string& name, const Labels& labels, const Json& ns) {
    CAPTURE(name);
    CHECK(sample(name, labels) == doctest::Approx(ns.to_number<double>() / 1e9).epsilon(1e-12));
  }

  void check_pool() {
    const Json& pool = json_.at("pool");
    for (const Names& row : kPoolNames) same(row.metric, {}, pool.at(row.json));
    same("cswap_freed_objects_total", {{"by", "request"}}, pool.at("freed_in_request"));
    same("cswap_freed_objects_total", {{"by", "background"}}, pool.at("freed_in_background"));
    CHECK(sample("cswap_limit_reached", {}) == (pool.at("limit_reached").as_bool() ? 1 : 0));
    check_latency("cswap_free_latency", {}, pool.at("latency").at("free"));
    CHECK(pool.as_object().size() == std::size(kPoolNames) + 4);
    Labels info;
    for (const char* key : {"version", "compressor", "alloc", "batch", "free"}) {
      info.emplace_back(key, string_at(json_, key));
    }
    CHECK(sample("cswap_build_info", info) == 1);
  }

  void check_tenant(const Json& tenant) {
    const std::string name = string_at(tenant, "name");
    for (const Names& row : kTenantNames) {
      same(row.metric, {{"tenant", name}}, tenant.at(row.json));
    }
    for (const Names& row : kOrderNames) {
      const boost::json::object& orders = tenant.at(row.json).as_object();
      CHECK(orders.size() == kOrders);
      for (const auto& order : orders) {
        same(row.metric, {{"tenant", name}, {"order", std::string(order.key())}}, order.value());
      }
    }
    for (const char* operation : kOperationNames) {
      check_latency("cswap_latency", {{"tenant", name}, {"operation", operation}},
                    tenant.at("latency").at(operation));
    }
    CHECK(tenant.as_object().size() == std::size(kTenantNames) + std::size(kOrderNames) + 2);
  }

  void check_latency(const std::string& family, const Labels& labels, const Json& sum) {
    const boost::json::object& orders = sum.at("orders").as_object();
    std::vector<double> buckets(kLatencyBoundsNs.size() + 1);
    double max_seconds = 0;
    for (size_t order = 0; order < kOrders; ++order) {
      const std::string name = std::to_string(order);
      if (order > 0 && !orders.contains(name)) continue;
      Labels with_order = labels;
      with_order.emplace_back("order", name);
      if (orders.contains(name)) check_order(family, with_order, orders.at(name));
      const std::vector<double> more = take_histogram(family, with_order);
      for (size_t i = 0; i < buckets.size(); ++i) buckets[i] += more[i];
      max_seconds = std::max(max_seconds, sample(family + "_max_seconds", with_order));
    }
    CHECK(buckets.back() == sum.at("count").to_number<double>());
    CHECK(max_seconds == doctest::Approx(sum.at("max_ns").to_number<double>() / 1e9));
    for (size_t i = 0; i < buckets.size(); ++i) {
      CHECK(buckets[i] == sum.at("buckets").at(i).at("count").to_number<double>());
    }
  }

  void check_order(const std::string& family, const Labels& labels, const Json& latency) {
    same(family + "_seconds_count", labels, latency.at("count"));
    same_ns(family + "_seconds_sum", labels, latency.at("sum_ns"));
    same_ns(family + "_max_seconds", labels, latency.at("max_ns"));
  }

  // The buckets of one series, cumulative.
  std::vector<double> take_histogram(const std::string& family, const Labels& labels) {
    sample(family + "_seconds_sum", labels);
    sample(family + "_seconds_count", labels);
    std::vector<std::pair<double, double>> by_bound;
    for (const auto& [series, count] : text_.samples) {
      if (series.first != family + "_seconds_bucket") continue;
      Labels all = series.second;
      const std::string bound = all.back().second;
      all.pop_back();
      if (all != labels) continue;
      compared_.insert(series);
      by_bound.emplace_back(std::stod(bound), count);
    }
    std::ranges::sort(by_bound);
    std::vector<double> counts;
    for (const auto& [bound, count] : by_bound) counts.push_back(count);
    REQUIRE(counts.size() == kLatencyBoundsNs.size() + 1);
    return counts;
  }

  const Exposition text_;
  const Json json_;
  std::set<Exposition::Series> compared_;
};

// A different number everywhere.
PoolSnapshot full_pool() {
  PoolSnapshot pool = pool_of({"a", "b\"{"});
  uint64_t n = 1'000'003;
  const auto next = [&n] { return n += 7; };
  for (uint64_t PoolSnapshot::*field :
       {&PoolSnapshot::mem_used_total, &PoolSnapshot::mem_used_max, &PoolSnapshot::mem_limit,
        &PoolSnapshot::pool_total_size, &PoolSnapshot::metadata_size, &PoolSnapshot::headroom,
        &PoolSnapshot::pages_compacted, &PoolSnapshot::workers, &PoolSnapshot::free_waiting_objects,
        &PoolSnapshot::free_waiting_bytes, &PoolSnapshot::freed_in_request,
        &PoolSnapshot::freed_in_background, &PoolSnapshot::slot_cache_bytes}) {
    pool.*field = next();
  }
  pool.limit_reached = true;
  pool.alloc = "global", pool.batch = "off", pool.free = "sync";
  const auto some = [&next](uint32_t first) {
    return latencies({{first, next()}, {first, next() * 1'000}, {9, next() * 1'000'000}});
  };
  pool.free_latency = some(6);
  for (TenantSnapshot& tenant : pool.tenants) {
    for (uint64_t TenantSnapshot::*field :
         {&TenantSnapshot::size_bytes, &TenantSnapshot::stored_pages, &TenantSnapshot::same_pages,
          &TenantSnapshot::huge_pages, &TenantSnapshot::orig_data_size,
          &TenantSnapshot::compr_data_size, &TenantSnapshot::notify_free,
          &TenantSnapshot::pool_limit_hit, &TenantSnapshot::reject_alloc_fail,
          &TenantSnapshot::reject_compress_poor, &TenantSnapshot::decompress_fail,
          &TenantSnapshot::written_back_pages}) {
      tenant.*field = next();
    }
    for (auto* orders : {&tenant.swpout, &tenant.swpout_fallback, &tenant.swpin}) {
      for (uint64_t& count : *orders) count = next();
    }
    tenant.latency = {some(0), some(1), some(8)};
  }
  pool.locks.resize(2);
  for (LockSnapshot& lock : pool.locks) {
    lock.acquired = next();
    lock.waits = {"", next(), next() * 1'000'000'000, next(), next()};
  }
  pool.locks[0].name = "store", pool.locks[1].name = "free_queue";
  return pool;
}

TEST_CASE("text and JSON have the same numbers, and neither has one that the other lacks") {
  Agreement(full_pool()).check();
  Agreement(pool_of({"empty"})).check();
  Agreement(pool_of({})).check();
}

enum class Content { kCompressible, kRandom, kSame };

std::vector<std::byte> make_pages(uint64_t pages, Content content) {
  std::vector<std::byte> bytes(pages * kPageBytes);
  std::mt19937_64 random(pages);
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const bool varied =
        content == Content::kRandom || (content == Content::kCompressible && at % kPageBytes < 256);
    const uint64_t word = varied ? random() : 0;
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
  return bytes;
}

struct Driven {
  explicit Driven(PoolOptions options)
      : pool(std::move(options), kBytes), tenant(pool.add_tenant("t", kBytes)) {}

  void store(uint64_t page, uint64_t pages, Content content) {
    REQUIRE(pool.store(tenant, page * kPageBytes, make_pages(pages, content)) == Status::kOk);
  }
  void load(uint64_t page, uint64_t pages) {
    std::vector<std::byte> out(pages * kPageBytes);
    REQUIRE(pool.load(tenant, page * kPageBytes, out) == Status::kOk);
  }
  void discard(uint64_t page, uint64_t pages) {
    pool.discard(tenant, page * kPageBytes, pages * kPageBytes);
  }

  static constexpr uint64_t kBytes = 16ull << 20;
  Pool pool;
  Tenant& tenant;
};

uint64_t pages_in(const Json& orders) {
  uint64_t pages = 0;
  for (const auto& order : orders.as_object()) {
    pages += order.value().to_number<uint64_t>() << std::stoul(std::string(order.key()));
  }
  return pages;
}

uint64_t number(const Json& object, const char* key) {
  return object.at(key).to_number<uint64_t>();
}

void check_identity(const PoolOptions& options) {
  CAPTURE(options.batch);
  Driven driven(options);
  driven.store(0, 512, Content::kCompressible);  // 2 MiB
  driven.store(1024, 16, Content::kRandom);
  driven.store(2000, 3, Content::kSame);
  driven.store(2100, 1, Content::kCompressible);
  driven.store(0, 16, Content::kCompressible);  // again
  driven.discard(100, 64);
  driven.load(0, 1);
  driven.load(8, 12);
  driven.pool.drain_free_queues();

  const PoolSnapshot snapshot = driven.pool.snapshot();
  Agreement(snapshot).check();
  const Json json = parsed_json(snapshot);
  const Json& tenant = json.at("tenants").at(0);
  const Json& pool = json.at("pool");
  constexpr uint64_t kWritten = 512 + 16 + 3 + 1 + 16;
  CHECK(pages_in(tenant.at("swpout")) == kWritten);
  CHECK(pages_in(tenant.at("swpin")) == 13);
  // Slots written and not trimmed: same-filled, raw and compressed.
  CHECK(number(tenant, "stored_pages") == kWritten - 16 - 64);
  CHECK(number(tenant, "notify_free") == 64);
  CHECK(number(tenant, "same_pages") == 3);
  CHECK(number(tenant, "huge_pages") == 16);
  CHECK(number(tenant, "reject_compress_poor") == 16);
  CHECK(number(tenant, "orig_data_size") == number(tenant, "stored_pages") * kPageBytes);
  CHECK(number(tenant, "compr_data_size") >= 16 * kPageBytes);
  CHECK(number(tenant, "compr_data_size") <= number(pool, "pool_total_size"));
  CHECK(number(pool, "mem_used_total") ==
        number(pool, "pool_total_size") + number(pool, "metadata_size"));
  CHECK(number(pool, "free_waiting_objects") == 0);
  CHECK(number(pool, "free_waiting_bytes") == 0);
  CHECK(number(pool, "freed_in_request") + number(pool, "freed_in_background") == 16 + 64);
  CHECK(number(latency_in(json, "store"), "count") == 5);
  CHECK(number(latency_in(json, "load"), "count") == 2);
  CHECK(number(latency_in(json, "discard"), "count") == 1);
  CHECK(number(latency_in(json, "store").at("orders").at("9"), "count") == 1);
  CHECK(number(latency_in(json, "store").at("orders").at("4"), "count") == 2);
  CHECK(number(latency_in(json, "load").at("orders").at("3"), "count") == 1);  // of 12 pages
  // A request stored page by page counts as what it would have been in swpout_fallback alone.
  const char* whole = options.batch ? "swpout" : "swpout_fallback";
  CHECK(number(tenant.at(whole), "9") == 1);
  CHECK(number(tenant.at(whole), "4") == 2);
  CHECK(number(tenant.at(whole), "1") == 1);
  CHECK(number(tenant.at("swpout"), "0") == (options.batch ? 2 : kWritten));
  CHECK(number(tenant.at("swpout_fallback"), "0") == 0);

  driven.discard(0, Driven::kBytes / kPageBytes);
  driven.pool.drain_free_queues();
  const Json emptied = parsed_json(driven.pool.snapshot());
  const Json& after = emptied.at("pool");
  CHECK(number(emptied.at("tenants").at(0), "stored_pages") == 0);
  CHECK(number(emptied.at("tenants").at(0), "compr_data_size") == 0);
  CHECK(number(after, "pool_total_size") == 0);
  CHECK(number(after, "mem_used_total") < number(pool, "mem_used_total"));
  CHECK(number(after, "mem_used_max") >= number(pool, "mem_used_max"));
}

PoolOptions options_of(AllocMode alloc, bool batch, FreeMode free) {
  PoolOptions options;
  options.codec = parse_codec("lz4");
  options.alloc = alloc;
  options.batch = batch;
  options.free = free;
  return options;
}

TEST_CASE("what a real pool says adds up, with every switch, and says which they are") {
  for (const AllocMode alloc : {AllocMode::kCluster, AllocMode::kGlobal}) {
    for (const bool batch : {true, false}) {
      for (const FreeMode free : {FreeMode::kAsync, FreeMode::kSync}) {
        const PoolOptions options = options_of(alloc, batch, free);
        check_identity(options);
        const Json json = parsed_json(Pool(options, Driven::kBytes).snapshot());
        CHECK(string_at(json, "alloc") == (alloc == AllocMode::kCluster ? "cluster" : "global"));
        CHECK(string_at(json, "batch") == (batch ? "on" : "off"));
        CHECK(string_at(json, "free") == (free == FreeMode::kAsync ? "async" : "sync"));
      }
    }
  }
}

TEST_CASE("no counter falls, no peak falls and no series ends while requests run") {
  Driven driven(options_of(AllocMode::kCluster, true, FreeMode::kAsync));
  std::atomic<bool> stop{false};
  std::thread requests([&] {
    for (uint64_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      driven.store(i * 37 % 2048, 1 + i % 40, Content::kCompressible);
      driven.load(i * 53 % 2048, 1 + i % 9);
      driven.discard(i * 31 % 2048, 1 + i % 100);
    }
  });
  std::map<Exposition::Series, double> before;
  for (int i = 0; i < 200; ++i) {
    const Exposition now = parse_exposition(format_prometheus(driven.pool.snapshot()));
    for (const auto& [series, value] : before) {
      CAPTURE(series.first);
      REQUIRE(now.samples.contains(series));
      const std::string& type = now.families.at(now.family_of(series.first)).type;
      const bool grows = type != "gauge" || series.first.find("_max_") != std::string::npos;
      if (grows) CHECK(now.samples.at(series) >= value);
    }
    before = now.samples;
  }
  stop = true;
  requests.join();
}

}  // namespace
}  // namespace cswap::test
