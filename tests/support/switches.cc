#include "tests/support/switches.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace cswap::test {
namespace {

bool set(Switches& switches, const std::string& word) {
  if (word == "alloc=cluster" || word == "alloc=global") {
    switches.alloc = word == "alloc=global" ? AllocMode::kGlobal : AllocMode::kCluster;
  } else if (word == "batch=on" || word == "batch=off") {
    switches.batch = word == "batch=on";
  } else if (word == "free=async" || word == "free=sync") {
    switches.free = word == "free=async" ? FreeMode::kAsync : FreeMode::kSync;
  } else {
    return false;
  }
  return true;
}

Switches read_switches() {
  Switches switches;
  for (const std::string& word : switch_parameters()) {
    if (set(switches, word)) continue;
    std::fprintf(stderr, "CSWAP_TEST_SWITCHES: '%s' is no switch\n", word.c_str());
    std::abort();
  }
  return switches;
}

}  // namespace

const Switches& test_switches() {
  static const Switches switches = read_switches();
  return switches;
}

std::vector<std::string> switch_parameters() {
  const char* const given = std::getenv("CSWAP_TEST_SWITCHES");
  std::istringstream rest(given != nullptr ? given : "");
  std::vector<std::string> words;
  for (std::string word; rest >> word;) words.push_back(word);
  return words;
}

}  // namespace cswap::test
