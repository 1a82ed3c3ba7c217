// format_json() of stats_format.h. The object has the names of DESIGN.md, which are those of zram,
// zswap and vmstat.
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "plugin/stats_format.h"
#include "plugin/utf8.h"

namespace cswap {
namespace {

namespace json = boost::json;

json::object orders_object(const std::array<uint64_t, kOrders>& by_order) {
  json::object object;
  for (size_t order = 0; order < by_order.size(); ++order) {
    object[std::to_string(order)] = by_order[order];
  }
  return object;
}

// Experiment E5 compares these two parts of the loads.
constexpr uint64_t kFastNs = 100'000;
constexpr uint64_t kSlowNs = 500'000;
static_assert(std::ranges::count(kLatencyBoundsNs, kFastNs) == 1);
static_assert(std::ranges::count(kLatencyBoundsNs, kSlowNs) == 1);

json::object latency_object(const LatencySnapshot& latency) {
  json::array buckets;
  uint64_t below = 0;
  for (size_t i = 0; i < latency.buckets.size(); ++i) {
    below += latency.buckets[i];
    json::object bucket;
    if (i < kLatencyBoundsNs.size()) {
      bucket["le_ns"] = kLatencyBoundsNs[i];
    } else {
      bucket["le_ns"] = nullptr;
    }
    bucket["count"] = below;
    buckets.push_back(std::move(bucket));
  }
  json::object object;
  object["count"] = below;
  object["sum_ns"] = latency.sum_ns;
  object["max_ns"] = latency.max_ns;
  object["p50_ns"] = latency_percentile_ns(latency, 500);
  object["p99_ns"] = latency_percentile_ns(latency, 990);
  object["p999_ns"] = latency_percentile_ns(latency, 999);
  object["share_0_100us"] = latency_share(latency, 0, kFastNs);
  object["share_100_500us"] = latency_share(latency, kFastNs, kSlowNs);
  object["buckets"] = std::move(buckets);
  return object;
}

json::object latency_by_order_object(const LatencyByOrder& latency) {
  json::object orders;
  for (size_t order = 0; order < latency.size(); ++order) {
    json::object of_order = latency_object(latency[order]);
    if (of_order["count"].as_uint64() == 0) continue;
    orders[std::to_string(order)] = std::move(of_order);
  }
  json::object object = latency_object(sum_of(latency));
  object["orders"] = std::move(orders);
  return object;
}

json::object tenant_object(const TenantSnapshot& tenant, const std::string& label) {
  json::object object;
  object["name"] = label;
  object["size"] = tenant.size_bytes;
  object["stored_pages"] = tenant.stored_pages;
  object["same_pages"] = tenant.same_pages;
  object["huge_pages"] = tenant.huge_pages;
  object["orig_data_size"] = tenant.orig_data_size;
  object["compr_data_size"] = tenant.compr_data_size;
  object["notify_free"] = tenant.notify_free;
  object["pool_limit_hit"] = tenant.pool_limit_hit;
  object["reject_alloc_fail"] = tenant.reject_alloc_fail;
  object["reject_compress_poor"] = tenant.reject_compress_poor;
  object["decompress_fail"] = tenant.decompress_fail;
  object["written_back_pages"] = tenant.written_back_pages;
  object["swpout"] = orders_object(tenant.swpout);
  object["swpout_fallback"] = orders_object(tenant.swpout_fallback);
  object["swpin"] = orders_object(tenant.swpin);
  json::object latency;
  for (size_t op = 0; op < kOperationNames.size(); ++op) {
    latency[kOperationNames[op]] = latency_by_order_object(tenant.latency[op]);
  }
  object["latency"] = std::move(latency);
  return object;
}

json::object pool_object(const PoolSnapshot& pool) {
  json::object object;
  object["mem_used_total"] = pool.mem_used_total;
  object["mem_used_max"] = pool.mem_used_max;
  object["mem_limit"] = pool.mem_limit;
  object["pool_total_size"] = pool.pool_total_size;
  object["metadata_size"] = pool.metadata_size;
  object["headroom"] = pool.headroom;
  object["limit_reached"] = pool.limit_reached;
  object["pages_compacted"] = pool.pages_compacted;
  object["workers"] = pool.workers;
  object["free_waiting_objects"] = pool.free_waiting_objects;
  object["free_waiting_bytes"] = pool.free_waiting_bytes;
  object["freed_in_request"] = pool.freed_in_request;
  object["freed_in_background"] = pool.freed_in_background;
  object["slot_cache_bytes"] = pool.slot_cache_bytes;
  json::object latency;
  latency["free"] = latency_by_order_object(pool.free_latency);
  object["latency"] = std::move(latency);
  return object;
}

json::object waits_object(const LockWaits& waits) {
  json::object object;
  object["contended"] = waits.contended;
  object["total_wait_ns"] = waits.total_ns;
  object["max_wait_ns"] = waits.max_ns;
  object["min_wait_ns"] = waits.min_ns;
  object["avg_wait_ns"] = waits.average_ns();
  return object;
}

json::array locks_array(const std::vector<LockSnapshot>& locks) {
  json::array array;
  for (const LockSnapshot& lock : locks) {
    json::object object = waits_object(lock.waits);
    object["class"] = lock.name;
    object["acquired"] = lock.acquired;
    json::array callers;
    for (const LockWaits& waits : lock.callers) {
      callers.push_back(waits_object(waits));
      callers.back().as_object()["caller"] = waits.caller;
    }
    object["callers"] = std::move(callers);
    array.push_back(std::move(object));
  }
  return array;
}

}  // namespace

std::string format_json(const PoolSnapshot& pool) {
  const std::vector<std::string> labels = tenant_labels(pool);
  json::object root;
  root["version"] = CSWAP_VERSION;
  root["compressor"] = to_valid_utf8(pool.compressor);
  root["alloc"] = pool.alloc;
  root["batch"] = pool.batch;
  root["free"] = pool.free;
  root["pool"] = pool_object(pool);
  root["locks"] = locks_array(pool.locks);
  json::array tenants;
  for (size_t t = 0; t < pool.tenants.size(); ++t) {
    tenants.push_back(tenant_object(pool.tenants[t], labels[t]));
  }
  root["tenants"] = std::move(tenants);
  return json::serialize(root) + "\n";
}

}  // namespace cswap
