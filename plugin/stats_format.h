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
// seconds; `_total` ends the name of every counter and of nothing else. Families of the pool have
// no label, those of tenants have `tenant`, and after it `order` or `operation` where it applies.
//
// Whole numbers are exact below 2^53 (8 PiB). Above, the serializer rounds to 16 digits, which
// keeps the order of values, so that a counter never appears to fall.
[[nodiscard]] std::string format_prometheus(const PoolSnapshot& pool);

// One JSON object, sizes in bytes, latencies in nanoseconds, ends in a newline. Buckets are
// cumulative, as in the Prometheus text; the last one has the bound null. p50_ns, p99_ns and
// p999_ns are latency_percentile_ns().
[[nodiscard]] std::string format_json(const PoolSnapshot& pool);

// The upper bound of the bucket that holds the percentile, given in thousandths (p99 is 990), so
// the true value is at most this. In the bucket without a bound it is the longest latency seen.
// Zero when nothing was counted.
[[nodiscard]] uint64_t latency_percentile_ns(const LatencySnapshot& latency, uint32_t per_mille);

// Per tenant, in order: its name as valid UTF-8 without NUL, each byte that cannot stand replaced
// by U+FFFD. Labels are distinct even where names become the same by this (a double series makes
// Prometheus drop the whole scrape): a changed name then gets "#2", "#3" and so on at its end, and
// a name that is valid is never changed.
[[nodiscard]] std::vector<std::string> tenant_labels(const PoolSnapshot& pool);

}  // namespace cswap
