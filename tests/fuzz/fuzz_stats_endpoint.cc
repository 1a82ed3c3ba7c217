// The parameter `stats`: any value is either an endpoint that reads back the same from its text, or
// a message that starts with the key and the value.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "plugin/stats_endpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view value(reinterpret_cast<const char*>(data), size);
  std::string error;
  const auto endpoint = cswap::parse_stats_endpoint(value, error);
  if (!endpoint) {
    if (error.find("stats=" + std::string(value) + ": ") != 0) std::abort();
    return 0;
  }
  if (!error.empty()) std::abort();
  const bool is_unix = endpoint->kind == cswap::StatsEndpoint::Kind::kUnix;
  if (is_unix ? endpoint->path.empty() : endpoint->host.empty() || endpoint->port == 0) {
    std::abort();
  }
  const auto again = cswap::parse_stats_endpoint(endpoint->text(), error);
  if (!again || again->text() != endpoint->text()) std::abort();
  return 0;
}
