// Snapshots made for tests, and both of their forms read back.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/stats.h"

namespace cswap::test {

// With a tenant of each name, and otherwise empty.
[[nodiscard]] PoolSnapshot pool_of(const std::vector<std::string>& names);

// Counted by the pool's own recorder: pairs of an order and nanoseconds.
[[nodiscard]] LatencyByOrder latencies(
    const std::vector<std::pair<uint32_t, uint64_t>>& orders_and_ns);
// Of order 0.
[[nodiscard]] LatencySnapshot latencies_ns(const std::vector<uint64_t>& values_ns);

// What format_json() makes of it. Throws when that is not JSON.
[[nodiscard]] boost::json::value parsed_json(const PoolSnapshot& pool);
// latency.OPERATION of the first tenant.
[[nodiscard]] const boost::json::value& latency_in(const boost::json::value& json,
                                                   const char* operation);

}  // namespace cswap::test
