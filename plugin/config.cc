#include "plugin/config.h"

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <memory>

#include "compress/codecs.h"
#include "core/types.h"

namespace cswap {
namespace {

constexpr std::string_view kKeys =
    "size, compressor, same_filled, mem_limit, accept_threshold, alloc, batch, free, checksum, "
    "stats, stats_public, mlock";

std::string refuse(std::string_view key, std::string_view value, std::string_view accepted) {
  return std::string(key) + ": '" + std::string(value) +
         "' is not accepted: " + std::string(accepted);
}

std::string set_switch(std::string_view key, std::string_view value, bool* to) {
  if (value == "on" || value == "true" || value == "yes" || value == "1") {
    *to = true;
  } else if (value == "off" || value == "false" || value == "no" || value == "0") {
    *to = false;
  } else {
    return refuse(key, value, "give on or off");
  }
  return "";
}

// One of two words.
template <typename Enum>
std::string set_choice(std::string_view key, std::string_view value, std::string_view first,
                       Enum if_first, std::string_view second, Enum if_second, Enum* to) {
  if (value != first && value != second) {
    return refuse(key, value, "give " + std::string(first) + " or " + std::string(second));
  }
  *to = value == first ? if_first : if_second;
  return "";
}

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Sizes are read by nbdkit, so that suffixes mean what they mean everywhere else.
std::optional<uint64_t> parse_size(const char* value) {
  const int64_t size = nbdkit_parse_size(value);
  if (size < 0) return std::nullopt;
  return static_cast<uint64_t>(size);
}

}  // namespace

Config::Config() { pool_.codec = parse_codec("lz4"); }

std::string Config::set(std::string_view key, const char* value) {
  if (!seen_.emplace(key).second) {
    const char* const hint = key == "size" ? " (a word without '=' is the size)" : "";
    return refuse(key, value, std::string("it was already given; give each parameter once") + hint);
  }
  if (key == "size") return set_size(value);
  if (key == "compressor") return set_compressor(value);
  if (key == "same_filled") return set_switch(key, value, &pool_.same_filled);
  if (key == "mem_limit") return set_mem_limit(value);
  if (key == "accept_threshold") return set_accept_threshold(value);
  if (key == "alloc") {
    return set_choice(key, value, "cluster", AllocMode::kCluster, "global", AllocMode::kGlobal,
                      &pool_.alloc);
  }
  if (key == "batch") return set_switch(key, value, &pool_.batch);
  if (key == "free") {
    return set_choice(key, value, "async", FreeMode::kAsync, "sync", FreeMode::kSync, &pool_.free);
  }
  if (key == "checksum") return set_switch(key, value, &pool_.checksum);
  if (key == "stats") return set_stats(value);
  if (key == "stats_public") return set_switch(key, value, &stats_public_);
  if (key == "mlock") return set_mlock(value);
  return "unknown parameter '" + std::string(key) + "' (with value '" + value +
         "'); known are: " + std::string(kKeys);
}

std::string Config::complete() const {
  if (size_bytes_ == 0) {
    return "size is required: give the size of the device, for example 'nbdkit cswap 4G'";
  }
  return "";
}

std::string Config::set_size(const char* value) {
  constexpr std::string_view kAccepted =
      "give a multiple of 4096 bytes from 64K to 16T, with a suffix such as K, M, G or T";
  const auto size = parse_size(value);
  if (!size) return refuse("size", value, kAccepted);
  const std::string why = *size < kMinDeviceBytes   ? "it is below 64 KiB; "
                          : *size > kMaxDeviceBytes ? "it is above 16 TiB; "
                          : *size % kPageBytes != 0 ? "it is not a multiple of the 4096 byte page; "
                                                    : "";
  if (!why.empty()) return refuse("size", value, why + std::string(kAccepted));
  size_bytes_ = *size;
  return "";
}

std::string Config::set_compressor(const char* value) {
  std::shared_ptr<const Codec> codec = parse_codec(value);
  if (!codec) return refuse("compressor", value, "give one of " + std::string(kAcceptedCodecs));
  pool_.codec = std::move(codec);
  return "";
}

std::string Config::set_mem_limit(const char* value) {
  constexpr std::string_view kAccepted =
      "give 0 for no limit, a size of at least 64K, or 1% to 100% of RAM";
  const std::string_view text(value);
  uint64_t limit = 0;
  if (text.ends_with('%')) {
    const auto percent = parse_number(text.substr(0, text.size() - 1));
    if (!percent || *percent < 1 || *percent > 100) return refuse("mem_limit", value, kAccepted);
    const auto ram_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                           static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    limit = ram_bytes / 100 * *percent;
  } else {
    const auto size = parse_size(value);
    if (!size) return refuse("mem_limit", value, kAccepted);
    limit = *size;
  }
  if (limit != 0 && limit < kMinMemLimitBytes) {
    return refuse("mem_limit", value, "it is below 64 KiB; " + std::string(kAccepted));
  }
  pool_.mem_limit_bytes = limit;
  return "";
}

std::string Config::set_accept_threshold(const char* value) {
  const auto percent = parse_number(value);
  if (!percent || *percent < 1 || *percent > 100) {
    return refuse("accept_threshold", value, "give a percentage of mem_limit, 1 to 100");
  }
  pool_.accept_threshold_percent = static_cast<uint32_t>(*percent);
  return "";
}

std::string Config::set_stats(const char* value) {
  std::string error;
  auto endpoint = parse_stats_endpoint(value, error);
  if (!endpoint) return error;
  if (endpoint->kind == StatsEndpoint::Kind::kUnix) {
    // A daemon changes its directory before it listens.
    const std::unique_ptr<char, void (*)(void*)> path(nbdkit_absolute_path(endpoint->path.c_str()),
                                                      std::free);
    if (!path) return refuse("stats", value, "the path could not be made absolute");
    endpoint->path = path.get();
    if (endpoint->path.size() > kMaxSocketPathBytes) {
      return refuse("stats", value,
                    "the absolute path " + endpoint->path +
                        " is longer than the 107 bytes that a unix socket may have");
    }
  }
  stats_ = std::move(*endpoint);
  return "";
}

std::string Config::set_mlock(std::string_view value) {
  bool on = false;
  if (value == "auto") {
    mlock_ = LockMode::kAuto;
  } else if (set_switch("mlock", value, &on).empty()) {
    mlock_ = on ? LockMode::kOn : LockMode::kOff;
  } else {
    return refuse("mlock", value, "give auto, on or off");
  }
  return "";
}

}  // namespace cswap
