// Latencies: of requests by operation and order, and of frees.
#include <doctest/doctest.h>

#include <boost/json/value.hpp>

#include "plugin/stats_format.h"
#include "tests/http/exposition.h"
#include "tests/http/snapshots.h"

namespace cswap::test {
namespace {

constexpr uint64_t kThreeHours = 3ull * 3600 * 1'000'000'000;

Exposition::Labels series(const char* operation, const char* order) {
  return {{"tenant", "t"}, {"operation", operation}, {"order", order}};
}

double bucket(const Exposition& text, const std::string& family, Exposition::Labels labels,
              const char* le) {
  labels.emplace_back("le", le);
  return text.value(family + "_bucket", labels);
}

uint64_t whole(const boost::json::value& object, const char* key) {
  REQUIRE((object.at(key).is_uint64() || object.at(key).is_int64()));
  return object.at(key).to_number<uint64_t>();
}

TEST_CASE("latencies of any size are counted and none is lost") {
  PoolSnapshot pool = pool_of({"t"});
  pool.tenants[0].latency[0] =
      latencies({{0, 1}, {0, 1'000}, {0, 1'000'000'000}, {0, 100'000'000'000}, {0, kThreeHours}});
  const Exposition text = parse_exposition(format_prometheus(pool));
  const Exposition::Labels store = series("store", "0");
  CHECK(bucket(text, "cswap_latency_seconds", store, "1e-06") == 2);
  CHECK(bucket(text, "cswap_latency_seconds", store, "0.1") == 2);
  CHECK(bucket(text, "cswap_latency_seconds", store, "1") == 3);
  CHECK(bucket(text, "cswap_latency_seconds", store, "+Inf") == 5);
  CHECK(text.value("cswap_latency_seconds_count", store) == 5);
  CHECK(text.value("cswap_latency_seconds_sum", store) == doctest::Approx(10'901.000001001));
  CHECK(text.value("cswap_latency_max_seconds", store) == 10'800);

  const boost::json::value json = parsed_json(pool);
  const boost::json::value& latency = latency_in(json, "store");
  CHECK(whole(latency, "count") == 5);
  CHECK(whole(latency, "max_ns") == kThreeHours);
  CHECK(whole(latency, "sum_ns") == 1 + 1'000 + 1'000'000'000 + 100'000'000'000 + kThreeHours);
  CHECK(whole(latency, "p50_ns") == 1'000'000'000);
  CHECK(whole(latency, "p999_ns") == kThreeHours);
  CHECK(latency.at("buckets").as_array().size() == kLatencyBoundsNs.size() + 1);
  CHECK(latency.at("buckets").as_array().back().at("le_ns").is_null());
  CHECK(whole(latency.at("buckets").as_array().back(), "count") == 5);
  CHECK(latency.at("share_0_100us").to_number<double>() == doctest::Approx(0.4));
  CHECK(latency.at("share_100_500us").to_number<double>() == 0);
}

TEST_CASE("every order that counted has series, and order 0 always") {
  PoolSnapshot pool = pool_of({"t"});
  pool.tenants[0].latency[0] = latencies({{4, 7'000}, {4, 8'000}, {9, 3'000'000}});
  pool.tenants[0].latency[1] = latencies({{0, 2'000}});
  pool.free_latency = latencies({{6, 30'000}});
  const Exposition text = parse_exposition(format_prometheus(pool));
  const auto has = [&](const char* operation, const char* order) {
    const Exposition::Labels labels = series(operation, order);
    const bool max = text.samples.contains({"cswap_latency_max_seconds", labels});
    CHECK(text.samples.contains({"cswap_latency_seconds_sum", labels}) == max);
    CHECK(text.samples.contains({"cswap_latency_seconds_count", labels}) == max);
    return max;
  };
  for (const char* operation : kOperationNames) CHECK(has(operation, "0"));
  CHECK(has("store", "4"));
  CHECK(has("store", "9"));
  for (const char* order : {"1", "2", "3", "5", "6", "7", "8", "10"}) {
    CHECK_FALSE(has("store", order));
    CHECK_FALSE(has("load", order));
  }
  CHECK(text.value("cswap_latency_seconds_count", series("store", "0")) == 0);
  CHECK(text.value("cswap_latency_seconds_count", series("store", "4")) == 2);
  CHECK(text.value("cswap_latency_seconds_sum", series("store", "4")) == doctest::Approx(15e-6));
  CHECK(text.value("cswap_latency_max_seconds", series("store", "4")) == doctest::Approx(8e-6));
  CHECK(bucket(text, "cswap_latency_seconds", series("store", "9"), "0.002") == 0);
  CHECK(bucket(text, "cswap_latency_seconds", series("store", "9"), "0.005") == 1);

  CHECK(text.value("cswap_free_latency_seconds_count", {{"order", "0"}}) == 0);
  CHECK(text.value("cswap_free_latency_seconds_count", {{"order", "6"}}) == 1);
  CHECK(text.value("cswap_free_latency_max_seconds", {{"order", "6"}}) == doctest::Approx(30e-6));
  CHECK_FALSE(text.samples.contains({"cswap_free_latency_seconds_count", {{"order", "1"}}}));
}

TEST_CASE("a latency in JSON is the sum over the orders, and has each that counted") {
  PoolSnapshot pool = pool_of({"t"});
  pool.tenants[0].latency[0] = latencies({{0, 500}, {4, 7'000}, {4, 800'000}, {9, 3'000'000}});
  pool.free_latency = latencies({{6, 30'000}, {0, 900}});
  const boost::json::value json = parsed_json(pool);
  const boost::json::value& store = latency_in(json, "store");
  CHECK(whole(store, "count") == 4);
  CHECK(whole(store, "max_ns") == 3'000'000);
  const boost::json::object& orders = store.at("orders").as_object();
  CHECK(orders.size() == 3);
  CHECK(whole(orders.at("0"), "count") == 1);
  CHECK(whole(orders.at("4"), "count") == 2);
  CHECK(whole(orders.at("4"), "sum_ns") == 807'000);
  CHECK(orders.at("4").at("share_0_100us").to_number<double>() == 0.5);
  CHECK(whole(orders.at("9"), "p50_ns") == 5'000'000);
  CHECK_FALSE(orders.at("4").as_object().contains("orders"));
  uint64_t sum_ns = 0;
  for (const auto& order : orders) sum_ns += whole(order.value(), "sum_ns");
  CHECK(whole(store, "sum_ns") == sum_ns);
  CHECK(latency_in(json, "load").at("orders").as_object().empty());

  const boost::json::value& frees = json.at("pool").at("latency").at("free");
  CHECK(whole(frees, "count") == 2);
  CHECK(whole(frees, "max_ns") == 30'000);
  CHECK(whole(frees.at("orders").at("6"), "sum_ns") == 30'000);
}

TEST_CASE("an empty histogram prints zeros") {
  const PoolSnapshot pool = pool_of({"t"});
  const Exposition parsed = parse_exposition(format_prometheus(pool));
  size_t seen = 0;
  for (const auto& [series, value] : parsed.samples) {
    if (!series.first.starts_with("cswap_latency") &&
        !series.first.starts_with("cswap_free_latency")) {
      continue;
    }
    ++seen;
    CHECK(value == 0);
  }
  // Three operations and the frees, each with buckets, sum, count and maximum.
  CHECK(seen == 4 * (kLatencyBoundsNs.size() + 1 + 3));
  const boost::json::value json = parsed_json(pool);
  for (const boost::json::value& latency :
       {latency_in(json, "discard"), json.at("pool").at("latency").at("free")}) {
    for (const char* key : {"count", "sum_ns", "max_ns", "p50_ns", "p99_ns", "p999_ns"}) {
      CHECK(whole(latency, key) == 0);
    }
    for (const char* key : {"share_0_100us", "share_100_500us"}) {
      CHECK(latency.at(key).to_number<double>() == 0);
    }
    CHECK(latency.at("orders").as_object().empty());
  }
}

TEST_CASE("neither form ever prints what is not a number") {
  PoolSnapshot pool = pool_of({"t"});
  for (int filled = 0; filled < 2; ++filled) {
    for (const std::string& text : {format_prometheus(pool), format_json(pool)}) {
      for (const char* bad :
           {" nan", " -nan", " NaN", ":NaN", " inf", " Inf", " +Inf", "1e99999"}) {
        CAPTURE(std::string(bad));
        CHECK(text.find(bad) == std::string::npos);
      }
    }
    // As much of everything as there can be.
    for (LatencyByOrder* latency :
         {&pool.tenants[0].latency[0], &pool.tenants[0].latency[1], &pool.free_latency}) {
      for (LatencySnapshot& of_order : *latency) {
        of_order.buckets.back() = ~uint64_t{0} / kOrders;
        of_order.count = ~uint64_t{0} / kOrders;
        of_order.sum_ns = ~uint64_t{0} / kOrders;
        of_order.max_ns = ~uint64_t{0};
      }
    }
  }
  CHECK_NOTHROW((void)parse_exposition(format_prometheus(pool)));
  const boost::json::value json = parsed_json(pool);
  CHECK(whole(latency_in(json, "load"), "max_ns") == ~uint64_t{0});
  CHECK(latency_in(json, "load").at("share_0_100us").to_number<double>() == 0);
}

TEST_CASE("a percentile is the upper bound of its bucket") {
  const std::vector<uint64_t> fast(99, 1'000);
  std::vector<uint64_t> values = fast;
  values.push_back(3'000'000);
  CHECK(latency_percentile_ns(latencies_ns(values), 500) == 1'000);
  CHECK(latency_percentile_ns(latencies_ns(values), 990) == 1'000);
  CHECK(latency_percentile_ns(latencies_ns(values), 999) == 5'000'000);
  CHECK(latency_percentile_ns(latencies_ns({10'000}), 990) == 10'000);
  CHECK(latency_percentile_ns(latencies_ns({10'001}), 990) == 20'000);
  CHECK(latency_percentile_ns(latencies_ns({7'000'000'000}), 500) == 7'000'000'000);
  LatencySnapshot huge;
  huge.buckets[0] = ~uint64_t{0};
  CHECK(latency_percentile_ns(huge, 999) == 1'000);
}

TEST_CASE("a share counts what is above its lower and at most its upper bound") {
  const LatencySnapshot all =
      latencies_ns({1, 99'999, 100'000, 100'001, 500'000, 500'001, 2'000'000'000, kThreeHours});
  CHECK(latency_share(all, 0, 100'000) == 3.0 / 8);
  CHECK(latency_share(all, 100'000, 500'000) == 2.0 / 8);
  CHECK(latency_share(all, 500'000, 1'000'000'000) == 1.0 / 8);
  CHECK(latency_share(latencies_ns({1}), 0, 100'000) == 1);
  CHECK(latency_share(latencies_ns({100'001}), 0, 100'000) == 0);
  CHECK(latency_share(latencies_ns({}), 0, 100'000) == 0);

  PoolSnapshot pool = pool_of({"t"});
  pool.tenants[0].latency[1] = latencies({{0, 50'000}, {0, 50'000}, {3, 200'000}, {0, 900'000}});
  const boost::json::value json = parsed_json(pool);
  CHECK(latency_in(json, "load").at("share_0_100us").to_number<double>() == 0.5);
  CHECK(latency_in(json, "load").at("share_100_500us").to_number<double>() == 0.25);
}

}  // namespace
}  // namespace cswap::test
