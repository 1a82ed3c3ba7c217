#include "plugin/stats_endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>

namespace cswap {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
constexpr size_t kMaxHostBytes = 253;  // of a DNS name

constexpr std::string_view kAccepted =
    "accepted are unix:PATH and HOST:PORT, such as unix:/run/cswap-stats.sock, 127.0.0.1:9100, "
    "[::1]:9100 or localhost:9100";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_host_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '-' || c == '.' ||
         c == '_';
}

// Each parser returns what is wrong, or nothing.

std::string parse_path(std::string_view path, StatsEndpoint& endpoint) {
  if (path.empty()) return "the path is missing";
  if (path.find('\0') != std::string_view::npos) return "the path holds a NUL byte";
  if (path.size() > kMaxSocketPathBytes) {
    return "the path has " + std::to_string(path.size()) + " bytes, a socket's may have " +
           std::to_string(kMaxSocketPathBytes);
  }
  endpoint.kind = StatsEndpoint::Kind::kUnix;
  endpoint.path = path;
  return "";
}

std::string parse_port(std::string_view port, StatsEndpoint& endpoint) {
  if (port.empty()) return "the port is missing";
  uint32_t number = 0;
  const auto [end, status] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (status != std::errc() || end != port.data() + port.size() || number < 1 || number > 65535) {
    return "the port must be a number from 1 to 65535";
  }
  endpoint.port = static_cast<uint16_t>(number);
  return "";
}

std::string parse_host(std::string_view host, StatsEndpoint& endpoint) {
  if (host.empty()) return "the host is missing";
  if (host.size() > kMaxHostBytes) return "the host is too long";
  if (host.front() == '[') {
    if (host.back() != ']' || host.size() < 3) return "the bracket around the host is not closed";
    endpoint.host = host.substr(1, host.size() - 2);
    in6_addr address{};
    if (endpoint.host.find('\0') != std::string::npos ||
        inet_pton(AF_INET6, endpoint.host.c_str(), &address) != 1) {
      return "the host in brackets is not an IPv6 address";
    }
    return "";
  }
  if (host.find(':') != std::string_view::npos) {
    return "an IPv6 address must stand in brackets";
  }
  if (!std::all_of(host.begin(), host.end(), is_host_char)) {
    return "the host holds a character that no host name has";
  }
  endpoint.host = host;
  // The resolver reads 127.1 and 017700000001 as addresses too; nobody means them.
  const bool numeric =
      std::all_of(host.begin(), host.end(), [](char c) { return is_digit(c) || c == '.'; });
  in_addr address{};
  if (numeric && inet_pton(AF_INET, endpoint.host.c_str(), &address) != 1) {
    return "the host is not an IPv4 address";
  }
  return "";
}

std::string parse_tcp(std::string_view value, StatsEndpoint& endpoint) {
  endpoint.kind = StatsEndpoint::Kind::kTcp;
  // A bracketed address ends before its port, so the last colon is always the one before the port,
  // unless there is no port at all.
  const size_t colon = value.rfind(':');
  const size_t bracket = value.rfind(']');
  if (colon == std::string_view::npos || (bracket != std::string_view::npos && colon < bracket)) {
    return "it has neither the prefix unix: nor a port";
  }
  std::string wrong = parse_host(value.substr(0, colon), endpoint);
  if (wrong.empty()) wrong = parse_port(value.substr(colon + 1), endpoint);
  return wrong;
}

}  // namespace

std::string StatsEndpoint::text() const {
  if (kind == Kind::kUnix) return std::string(kUnixPrefix) + path;
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::optional<StatsEndpoint> parse_stats_endpoint(std::string_view value, std::string& error) {
  StatsEndpoint endpoint;
  std::string wrong;
  if (value.empty()) {
    wrong = "the value is empty";
  } else if (value.starts_with(kUnixPrefix)) {
    wrong = parse_path(value.substr(kUnixPrefix.size()), endpoint);
  } else {
    wrong = parse_tcp(value, endpoint);
  }
  if (wrong.empty()) return endpoint;
  error = "stats=" + std::string(value) + ": " + wrong + "; " + std::string(kAccepted);
  return std::nullopt;
}

}  // namespace cswap
