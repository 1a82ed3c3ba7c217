// The switches that a program of tests runs under: the environment variable CSWAP_TEST_SWITCHES has
// them as the plugin's parameters, "alloc=global batch=off free=sync". CTest runs what depends on
// them several times, see switches.cmake.
#pragma once

#include <string>
#include <vector>

#include "core/options.h"

namespace cswap::test {

struct Switches {
  AllocMode alloc = AllocMode::kCluster;
  bool batch = true;
  FreeMode free = FreeMode::kAsync;
};

// What is not named is as by default. Aborts with a message at what it does not know.
[[nodiscard]] const Switches& test_switches();

// The words of the variable: parameters for a server.
[[nodiscard]] std::vector<std::string> switch_parameters();

}  // namespace cswap::test
