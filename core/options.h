// Every bound and every choice of a pool, in one place.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "compress/codec.h"

namespace cswap {

inline constexpr uint64_t kMinDeviceBytes = 64ull << 10;
inline constexpr uint64_t kMaxDeviceBytes = 16ull << 40;
inline constexpr uint64_t kMinMemLimitBytes = 64ull << 10;
// The most that one store or load may carry; nbdkit's own limit.
inline constexpr uint64_t kMaxRequestBytes = 64ull << 20;
// Requests that can be worked on at one moment; more wait for a Worker. Far above any number of
// cores that has been tried; a Worker that was never needed is never made.
inline constexpr uint32_t kMaxWorkers = 256;
// How often a write of a part of a page prepares anew because others changed the page meanwhile,
// before it prepares under the slot cluster lock.
inline constexpr int kMaxPartialTries = 8;

// How objects get their places: by size class from object clusters that have a lock each, or with
// one lock around every allocation and free, and a cache of 64 places for each Worker and class.
enum class AllocMode { kCluster, kGlobal };
// Where displaced objects are freed: by a background thread, or 64 at a time in the request that
// finds so many waiting.
enum class FreeMode { kAsync, kSync };

struct PoolOptions {
  std::shared_ptr<const Codec> codec;
  bool same_filled = true;
  bool checksum = false;
  uint64_t mem_limit_bytes = 0;  // 0: none
  uint32_t accept_threshold_percent = 90;
  AllocMode alloc = AllocMode::kCluster;
  // A request is stored as a whole, or page by page. Page by page, one that fails may have stored
  // some of its pages.
  bool batch = true;
  FreeMode free = FreeMode::kAsync;
  // Called first in each thread of the pool's own; may be empty.
  std::function<void()> on_thread_start;
};

}  // namespace cswap
