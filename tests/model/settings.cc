#include "tests/model/settings.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace cswap::test {
namespace {

[[noreturn]] void usage(const std::string& wrong) {
  std::fprintf(stderr,
               "model_test: '%s' is not accepted\n"
               "usage: model_test [--compressor=NAME] [--same_filled=on|off] [--checksum=on|off]\n"
               "  [--mem_limit=SIZE] [--filter=NBDKIT_FILTER] [--operations=N] [--connections=N]\n"
               "  [--sharing_connections=N] [--threads=N]\n"
               "CSWAP_SEED in the environment repeats a run.\n",
               wrong.c_str());
  std::exit(2);
}

bool set_text(Settings& settings, const std::string& name, const std::string& value) {
  if (name == "compressor") {
    settings.compressor = value;
  } else if (name == "same_filled") {
    settings.same_filled = value;
  } else if (name == "checksum") {
    settings.checksum = value;
  } else if (name == "mem_limit") {
    settings.mem_limit = value;
  } else if (name == "filter") {
    settings.filter = value;
  } else {
    return false;
  }
  return true;
}

uint64_t* number_named(Settings& settings, const std::string& name) {
  if (name == "operations") return &settings.operations;
  if (name == "connections") return &settings.connections;
  if (name == "sharing_connections") return &settings.sharing_connections;
  if (name == "threads") return &settings.threads;
  return nullptr;
}

}  // namespace

Settings parse_settings(const Words& arguments) {
  Settings settings;
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    if (!argument.starts_with("--") || equals == std::string::npos) usage(argument);
    const std::string name = argument.substr(2, equals - 2);
    const std::string value = argument.substr(equals + 1);
    if (set_text(settings, name, value)) continue;
    uint64_t* const number = number_named(settings, name);
    if (number == nullptr) usage(argument);
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *number);
    if (error != std::errc() || end != value.data() + value.size()) usage(argument);
  }
  return settings;
}

}  // namespace cswap::test
