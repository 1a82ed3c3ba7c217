// The plugin's parameters: each is checked where it is read, and its message names the key, the
// value and what is accepted.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/options.h"
#include "plugin/memory_lock.h"
#include "plugin/stats_endpoint.h"

namespace cswap {

class Config {
 public:
  Config();

  // One `key=value`. Returns "" or a message. Throws std::bad_alloc.
  [[nodiscard]] std::string set(std::string_view key, const char* value);
  // After the last. Returns "" or a message.
  [[nodiscard]] std::string complete() const;

  [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] const PoolOptions& pool() const { return pool_; }
  [[nodiscard]] const std::optional<StatsEndpoint>& stats() const { return stats_; }
  [[nodiscard]] bool stats_public() const { return stats_public_; }
  [[nodiscard]] LockMode mlock() const { return mlock_; }

  static constexpr const char* kHelp =
      "size=<SIZE>              (required) Device size, a multiple of 4096, 64K to 16T.\n"
      "compressor=<NAME>        lz4 (default), lz4:ACCELERATION, zstd, zstd:LEVEL, none.\n"
      "same_filled=on|off       Keep pages of one repeated word without an object (on).\n"
      "mem_limit=<SIZE>|<N>%    Most memory of the pool, or percent of RAM; 0 none (0).\n"
      "accept_threshold=<N>     After the limit was hit, accept below N percent of it (90).\n"
      "alloc=cluster|global     One lock for each object cluster, or for all (cluster).\n"
      "batch=on|off             Store a request as a whole, or page by page (on).\n"
      "free=async|sync          Free displaced objects in the background, or in requests (async).\n"
      "checksum=on|off          Check each object when it is loaded (off).\n"
      "stats=unix:<PATH>|<HOST>:<PORT>  Serve statistics over HTTP.\n"
      "stats_public=on|off      Let stats= listen beyond loopback (off).\n"
      "mlock=auto|on|off        Keep the server in memory; auto: when --swap was given.";

 private:
  std::string set_size(const char* value);
  std::string set_compressor(const char* value);
  std::string set_mem_limit(const char* value);
  std::string set_accept_threshold(const char* value);
  std::string set_stats(const char* value);
  std::string set_mlock(std::string_view value);

  std::set<std::string, std::less<>> seen_;
  uint64_t size_bytes_ = 0;
  PoolOptions pool_;
  std::optional<StatsEndpoint> stats_;
  bool stats_public_ = false;
  LockMode mlock_ = LockMode::kAuto;
};

}  // namespace cswap
