// What one run of the model test does, from its command line.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/process.h"

namespace cswap::test {

struct Settings {
  std::string compressor = "lz4";
  std::string same_filled = "on";
  std::string checksum = "off";
  std::string mem_limit = "0";
  // Switches; each as by default, or another value.
  std::string alloc = "cluster";
  std::string batch = "on";
  std::string free = "async";
  std::string filter;                // of nbdkit's; none when empty
  uint64_t operations = 3000;        // of each connection with an area of its own
  uint64_t connections = 4;          // with areas of their own
  uint64_t sharing_connections = 4;  // that write to the same pages
  uint64_t threads = 16;             // nbdkit's -t
  uint64_t seed = 0;

  [[nodiscard]] bool limited() const { return mem_limit != "0"; }
  // Whether a request that is refused has stored nothing.
  [[nodiscard]] bool all_or_nothing() const { return batch == "on"; }
};

// Reads `--compressor=zstd` and so on. Exits with a usage message for anything else.
[[nodiscard]] Settings parse_settings(const Words& arguments);

}  // namespace cswap::test
