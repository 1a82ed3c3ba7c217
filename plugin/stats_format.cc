// The families of the Prometheus text are tables of name, help and field; one loop serves each
// table. HELP texts hold no newline and no backslash: the serializer does not escape them.
#include "plugin/stats_format.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <limits>
#include <sstream>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "plugin/utf8.h"

namespace cswap {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

struct PoolFamily {
  const char* name;
  const char* help;
  MetricType type;
  uint64_t PoolSnapshot::*field;
};

constexpr auto kGauge = MetricType::Gauge;
constexpr auto kCounter = MetricType::Counter;

constexpr PoolFamily kPoolFamilies[] = {
    {"cswap_mem_used_total_bytes", "Memory that the pool uses now, objects and metadata.", kGauge,
     &PoolSnapshot::mem_used_total},
    {"cswap_mem_used_max_bytes", "Peak of the memory used, does not fall.", kGauge,
     &PoolSnapshot::mem_used_max},
    {"cswap_mem_limit_bytes", "Most memory the pool may use, 0 for no limit.", kGauge,
     &PoolSnapshot::mem_limit},
    {"cswap_pool_total_size_bytes", "Memory used for objects alone.", kGauge,
     &PoolSnapshot::pool_total_size},
    {"cswap_metadata_size_bytes", "Memory used for slot tables and allocator.", kGauge,
     &PoolSnapshot::metadata_size},
    {"cswap_headroom_bytes", "Memory that may still be used before the limit.", kGauge,
     &PoolSnapshot::headroom},
    {"cswap_pages_compacted_total", "Pages given back to the system by compaction.", kCounter,
     &PoolSnapshot::pages_compacted},
    {"cswap_workers", "Request contexts made so far.", kGauge, &PoolSnapshot::workers},
    {"cswap_free_waiting_objects", "Objects without a page that wait to be freed.", kGauge,
     &PoolSnapshot::free_waiting_objects},
    {"cswap_free_waiting_bytes", "Memory of the objects that wait to be freed.", kGauge,
     &PoolSnapshot::free_waiting_bytes},
    {"cswap_slot_cache_bytes", "Places for objects that workers hold ready, with alloc=global.",
     kGauge, &PoolSnapshot::slot_cache_bytes},
};

struct TenantFamily {
  const char* name;
  const char* help;
  MetricType type;
  uint64_t TenantSnapshot::*field;
};

constexpr TenantFamily kTenantFamilies[] = {
    {"cswap_size_bytes", "Size of the device.", kGauge, &TenantSnapshot::size_bytes},
    {"cswap_stored_pages", "Pages with content: compressed, raw or same-filled.", kGauge,
     &TenantSnapshot::stored_pages},
    {"cswap_same_pages", "Stored pages that repeat one word and take no memory.", kGauge,
     &TenantSnapshot::same_pages},
    {"cswap_huge_pages", "Stored pages that did not shrink and are kept raw.", kGauge,
     &TenantSnapshot::huge_pages},
    {"cswap_orig_data_size_bytes", "Stored pages in full, before compression.", kGauge,
     &TenantSnapshot::orig_data_size},
    {"cswap_compr_data_size_bytes", "Stored pages after compression, without allocator overhead.",
     kGauge, &TenantSnapshot::compr_data_size},
    {"cswap_notify_free_pages_total", "Pages freed by trim.", kCounter,
     &TenantSnapshot::notify_free},
    {"cswap_pool_limit_hit_total", "Requests refused because of the memory limit.", kCounter,
     &TenantSnapshot::pool_limit_hit},
    {"cswap_reject_alloc_fail_total", "Requests refused because no memory could be had.", kCounter,
     &TenantSnapshot::reject_alloc_fail},
    {"cswap_reject_compress_poor_total", "Pages stored raw because they did not shrink.", kCounter,
     &TenantSnapshot::reject_compress_poor},
    {"cswap_decompress_fail_total", "Pages that could not be produced: damaged object.", kCounter,
     &TenantSnapshot::decompress_fail},
    {"cswap_written_back_pages_total", "Pages moved to the second tier.", kCounter,
     &TenantSnapshot::written_back_pages},
};

struct OrderFamily {
  const char* name;
  const char* help;
  std::array<uint64_t, kOrders> TenantSnapshot::*field;
};

constexpr OrderFamily kOrderFamilies[] = {
    {"cswap_swpout_total", "Runs of 2^order pages that were stored as a whole.",
     &TenantSnapshot::swpout},
    {"cswap_swpout_fallback_total", "Runs of 2^order pages that were stored page by page.",
     &TenantSnapshot::swpout_fallback},
    {"cswap_swpin_total", "Runs of 2^order pages that were loaded.", &TenantSnapshot::swpin},
};

struct LockFamily {
  const char* name;
  const char* help;
  MetricType type;
  double (*value)(const LockSnapshot&);
};

double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

constexpr LockFamily kLockFamilies[] = {
    {"cswap_lock_acquired_total", "Locks taken, by class.", kCounter,
     [](const LockSnapshot& lock) { return static_cast<double>(lock.acquired); }},
    {"cswap_lock_contended_total", "Locks taken after a wait, by class.", kCounter,
     [](const LockSnapshot& lock) { return static_cast<double>(lock.waits.contended); }},
    {"cswap_lock_wait_seconds_total", "Time waited for locks, by class.", kCounter,
     [](const LockSnapshot& lock) { return seconds(lock.waits.total_ns); }},
    {"cswap_lock_wait_max_seconds", "Longest wait for a lock since the start, by class.", kGauge,
     [](const LockSnapshot& lock) { return seconds(lock.waits.max_ns); }},
    {"cswap_lock_wait_min_seconds", "Shortest wait for a lock since the start, by class.", kGauge,
     [](const LockSnapshot& lock) { return seconds(lock.waits.min_ns); }},
    {"cswap_lock_wait_avg_seconds", "Average wait for a lock since the start, by class.", kGauge,
     [](const LockSnapshot& lock) { return seconds(lock.waits.average_ns()); }},
};

ClientMetric make_metric(MetricType type, double value) {
  ClientMetric metric;
  if (type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return metric;
}

MetricFamily make_family(const char* name, const char* help, MetricType type) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  return family;
}

ClientMetric latency_metric(const LatencySnapshot& latency) {
  ClientMetric metric;
  uint64_t below = 0;
  for (size_t i = 0; i < latency.buckets.size(); ++i) {
    below += latency.buckets[i];
    metric.histogram.bucket.push_back({below, i < kLatencyBoundsNs.size()
                                                  ? seconds(kLatencyBoundsNs[i])
                                                  : std::numeric_limits<double>::infinity()});
  }
  // Not latency.count: the count must equal the last bucket, whatever made the snapshot.
  metric.histogram.sample_count = below;
  metric.histogram.sample_sum = seconds(latency.sum_ns);
  return metric;
}

void add_pool_families(const PoolSnapshot& pool, std::vector<MetricFamily>& out) {
  MetricFamily info =
      make_family("cswap_build_info", "Version, compressor and switches, always 1.", kGauge);
  info.metric.push_back(make_metric(kGauge, 1));
  info.metric.back().label = {{"version", CSWAP_VERSION},
                              {"compressor", to_valid_utf8(pool.compressor)},
                              {"alloc", pool.alloc},
                              {"batch", pool.batch},
                              {"free", pool.free}};
  out.push_back(std::move(info));
  for (const PoolFamily& row : kPoolFamilies) {
    MetricFamily family = make_family(row.name, row.help, row.type);
    family.metric.push_back(make_metric(row.type, static_cast<double>(pool.*row.field)));
    out.push_back(std::move(family));
  }
  MetricFamily limit = make_family("cswap_limit_reached",
                                   "1 while new pages are refused because of the limit.", kGauge);
  limit.metric.push_back(make_metric(kGauge, pool.limit_reached ? 1 : 0));
  out.push_back(std::move(limit));
}

void add_order_family(const PoolSnapshot& pool, const std::vector<std::string>& labels,
                      const OrderFamily& row, std::vector<MetricFamily>& out) {
  MetricFamily family = make_family(row.name, row.help, kCounter);
  for (size_t t = 0; t < pool.tenants.size(); ++t) {
    const auto& by_order = pool.tenants[t].*row.field;
    for (size_t order = 0; order < by_order.size(); ++order) {
      family.metric.push_back(make_metric(kCounter, static_cast<double>(by_order[order])));
      family.metric.back().label = {{"tenant", labels[t]}, {"order", std::to_string(order)}};
    }
  }
  out.push_back(std::move(family));
}

// A histogram and its longest latency.
class LatencyFamilies {
 public:
  LatencyFamilies(const char* name, const char* help, const char* max_name, const char* max_help)
      : histogram_(make_family(name, help, MetricType::Histogram)),
        longest_(make_family(max_name, max_help, kGauge)) {}

  // Series with these labels and the order.
  void add(const LatencyByOrder& latency, const std::vector<ClientMetric::Label>& labels) {
    for (size_t order = 0; order < latency.size(); ++order) {
      ClientMetric metric = latency_metric(latency[order]);
      if (order > 0 && metric.histogram.sample_count == 0) continue;
      histogram_.metric.push_back(std::move(metric));
      longest_.metric.push_back(make_metric(kGauge, seconds(latency[order].max_ns)));
      std::vector<ClientMetric::Label> with_order = labels;
      with_order.push_back({"order", std::to_string(order)});
      histogram_.metric.back().label = with_order;
      longest_.metric.back().label = std::move(with_order);
    }
  }

  void move_to(std::vector<MetricFamily>& out) {
    out.push_back(std::move(histogram_));
    out.push_back(std::move(longest_));
  }

 private:
  MetricFamily histogram_;
  MetricFamily longest_;
};

void add_latency_families(const PoolSnapshot& pool, const std::vector<std::string>& labels,
                          std::vector<MetricFamily>& out) {
  LatencyFamilies families(
      "cswap_latency_seconds", "Time to serve a request, by operation and order of its pages.",
      "cswap_latency_max_seconds", "Longest time to serve a request since the start.");
  for (size_t t = 0; t < pool.tenants.size(); ++t) {
    for (size_t op = 0; op < kOperationNames.size(); ++op) {
      families.add(pool.tenants[t].latency[op],
                   {{"tenant", labels[t]}, {"operation", kOperationNames[op]}});
    }
  }
  families.move_to(out);
}

void add_free_families(const PoolSnapshot& pool, std::vector<MetricFamily>& out) {
  MetricFamily freed = make_family("cswap_freed_objects_total",
                                   "Objects freed, by a request or in the background.", kCounter);
  for (const auto& [by, objects] : {std::pair("request", pool.freed_in_request),
                                    std::pair("background", pool.freed_in_background)}) {
    freed.metric.push_back(make_metric(kCounter, static_cast<double>(objects)));
    freed.metric.back().label = {{"by", by}};
  }
  out.push_back(std::move(freed));
  LatencyFamilies latency(
      "cswap_free_latency_seconds", "Time to free a batch, by order of its number of objects.",
      "cswap_free_latency_max_seconds", "Longest time to free a batch since the start.");
  latency.add(pool.free_latency, {});
  latency.move_to(out);
}

void add_lock_families(const PoolSnapshot& pool, std::vector<MetricFamily>& out) {
  for (const LockFamily& row : kLockFamilies) {
    MetricFamily family = make_family(row.name, row.help, row.type);
    for (const LockSnapshot& lock : pool.locks) {
      family.metric.push_back(make_metric(row.type, row.value(lock)));
      family.metric.back().label = {{"class", lock.name}};
    }
    if (!family.metric.empty()) out.push_back(std::move(family));
  }
}

}  // namespace

std::vector<std::string> tenant_labels(const PoolSnapshot& pool) {
  std::vector<std::string> labels;
  std::unordered_set<std::string> taken;
  for (const TenantSnapshot& tenant : pool.tenants) {
    labels.push_back(to_valid_utf8(tenant.name));
    if (labels.back() == tenant.name) taken.insert(tenant.name);
  }
  // Valid names have theirs by now; the others get what is left.
  std::unordered_set<std::string_view> seen;
  for (size_t t = 0; t < labels.size(); ++t) {
    const std::string& name = pool.tenants[t].name;
    const bool valid = labels[t] == name;
    if (valid && seen.insert(name).second) continue;
    const std::string base = labels[t];
    for (unsigned n = 2; !taken.insert(labels[t]).second; ++n) {
      labels[t] = base + "#" + std::to_string(n);
    }
  }
  return labels;
}

uint64_t latency_percentile_ns(const LatencySnapshot& latency, uint32_t per_mille) {
  uint64_t total = 0;
  for (const uint64_t n : latency.buckets) total += n;
  if (total == 0) return 0;
  // ceil(total * per_mille / 1000), in parts that cannot overflow.
  const uint64_t rank = total / 1000 * per_mille + (total % 1000 * per_mille + 999) / 1000;
  uint64_t below = 0;
  for (size_t i = 0; i < kLatencyBoundsNs.size(); ++i) {
    below += latency.buckets[i];
    if (below >= rank) return kLatencyBoundsNs[i];
  }
  // A reader may see the count of an overlong request before its maximum.
  return std::max(latency.max_ns, kLatencyBoundsNs.back());
}

double latency_share(const LatencySnapshot& latency, uint64_t above_ns, uint64_t up_to_ns) {
  uint64_t total = 0;
  uint64_t inside = 0;
  for (size_t i = 0; i < latency.buckets.size(); ++i) {
    total += latency.buckets[i];
    if (i >= kLatencyBoundsNs.size()) continue;
    const uint64_t bound = kLatencyBoundsNs[i];
    if (bound > above_ns && bound <= up_to_ns) inside += latency.buckets[i];
  }
  return total == 0 ? 0 : static_cast<double>(inside) / static_cast<double>(total);
}

std::string format_prometheus(const PoolSnapshot& pool) {
  const std::vector<std::string> labels = tenant_labels(pool);
  std::vector<MetricFamily> families;
  add_pool_families(pool, families);
  add_free_families(pool, families);
  for (const TenantFamily& row : kTenantFamilies) {
    MetricFamily family = make_family(row.name, row.help, row.type);
    for (size_t t = 0; t < pool.tenants.size(); ++t) {
      const auto value = static_cast<double>(pool.tenants[t].*row.field);
      family.metric.push_back(make_metric(row.type, value));
      family.metric.back().label = {{"tenant", labels[t]}};
    }
    families.push_back(std::move(family));
  }
  for (const OrderFamily& row : kOrderFamilies) add_order_family(pool, labels, row, families);
  add_latency_families(pool, labels, families);
  add_lock_families(pool, families);
  std::ostringstream out;
  out.exceptions(std::ios::badbit);  // a stream without it swallows bad_alloc and cuts the text
  prometheus::TextSerializer().Serialize(out, families);
  return std::move(out).str();
}

}  // namespace cswap
