// Where the statistics are served: the value of the parameter `stats`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cswap {

// The most bytes that a unix socket's path may have (sun_path without its NUL).
inline constexpr size_t kMaxSocketPathBytes = 107;

struct StatsEndpoint {
  enum class Kind { kUnix, kTcp };

  Kind kind = Kind::kUnix;
  std::string path;   // kUnix: as given; whoever parsed makes it absolute before it is listened on
  std::string host;   // kTcp: a name, an IPv4 address, or an IPv6 address without its brackets
  uint16_t port = 0;  // kTcp: 0 lets the kernel choose (tests); the parameter takes 1 to 65535

  // "unix:/run/x.sock", "127.0.0.1:9100", "[::1]:9100"
  [[nodiscard]] std::string text() const;
};

// Reads `unix:PATH` or `HOST:PORT`. Nothing is resolved or opened. On a bad value the result is
// empty and `error` names the parameter, the value, what is wrong with it and what is accepted.
[[nodiscard]] std::optional<StatsEndpoint> parse_stats_endpoint(std::string_view value,
                                                                std::string& error);

}  // namespace cswap
