// What the statistics endpoint shows: a PoolSnapshot as Prometheus text and as JSON.
//
// Thread safety: pure functions. Errors: only std::bad_alloc.
//
// Both forms name a tenant by its label, see tenant_labels().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/stats.h"

namespace cswap {

// Prometheus text format 0.0.4, ends in a newline. Names are cswap_<name>_<unit>, in bytes and
// seconds; `_total` ends the name of every counter and of nothing else. Families of tenants have
// the label `tenant`, and after it `operation` and `order` where they apply; those of the pool have
// no `tenant`.
//
// Of latencies only orders that counted something have series, so that the page stays small, and
// order 0, so that there is always one to sum.
//
// Whole numbers are exact below 2^53 (8 PiB). Above, the serializer rounds to 16 digits, which
// keeps the order of values, so that a counter never appears to fall.
[[nodiscard]] std::string format_prometheus(const PoolSnapshot& pool);

// One JSON object, sizes in bytes, latencies in nanoseconds, ends in a newline. A latency is the
// sum over all orders, and has each order that counted something in "orders". Buckets are
// cumulative, as in the Prometheus text; the last one has the bound null. p50_ns, p99_ns and
// p999_ns are latency_percentile_ns(), share_0_100us and share_100_500us are latency_share().
[[nodiscard]] std::string format_json(const PoolSnapshot& pool);

// The upper bound of the bucket that holds the percentile, given in thousandths (p99 is 990), so
// the true value is at most this. In the bucket without a bound it is the longest latency seen.
// Zero when nothing was counted.
[[nodiscard]] uint64_t latency_percentile_ns(const LatencySnapshot& latency, uint32_t per_mille);

// The part of all latencies that were longer than `above_ns` and at most `up_to_ns`, 0 to 1, each
// of which must be 0 or a bound of a bucket. Zero when nothing was counted.
[[nodiscard]] double latency_share(const LatencySnapshot& latency, uint64_t above_ns,
                                   uint64_t up_to_ns);

// Per tenant, in order: its name as valid UTF-8 without NUL, each byte that cannot stand replaced
// by U+FFFD. Labels are distinct even where names become the same by this (a double series makes
// Prometheus drop the whole scrape): a changed name then gets "#2", "#3" and so on at its end, and
// a name that is valid is never changed.
[[nodiscard]] std::vector<std::string> tenant_labels(const PoolSnapshot& pool);

}  // namespace cswap
