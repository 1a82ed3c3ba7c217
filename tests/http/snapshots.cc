#include "tests/http/snapshots.h"

#include <doctest/doctest.h>

#include <boost/json/parse.hpp>

#include "plugin/stats_format.h"

namespace cswap::test {

PoolSnapshot pool_of(const std::vector<std::string>& names) {
  PoolSnapshot pool;
  pool.compressor = "zstd:3";
  for (const std::string& name : names) {
    pool.tenants.emplace_back();
    pool.tenants.back().name = name;
  }
  return pool;
}

LatencyByOrder latencies(const std::vector<std::pair<uint32_t, uint64_t>>& orders_and_ns) {
  StatsShard shard;
  for (const auto& [order, ns] : orders_and_ns) shard.add_latency(Operation::kStore, order, ns);
  LatencyByOrder sum{};
  shard.add_to(Operation::kStore, sum);
  return sum;
}

LatencySnapshot latencies_ns(const std::vector<uint64_t>& values_ns) {
  std::vector<std::pair<uint32_t, uint64_t>> all;
  for (const uint64_t ns : values_ns) all.emplace_back(0, ns);
  return latencies(all)[0];
}

boost::json::value parsed_json(const PoolSnapshot& pool) {
  const std::string text = format_json(pool);
  CHECK(text.back() == '\n');
  return boost::json::parse(text);
}

const boost::json::value& latency_in(const boost::json::value& json, const char* operation) {
  return json.at("tenants").at(0).at("latency").at(operation);
}

}  // namespace cswap::test
