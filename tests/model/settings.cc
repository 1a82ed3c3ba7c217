#include "tests/model/settings.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace cswap::test {
namespace {

[[noreturn]] void usage(const std::string& wrong) {
  std::fprintf(
      stderr,
      "model_test: '%s' is not accepted\n"
      "usage: model_test [--compressor=NAME] [--same_filled=on|off] [--checksum=on|off]\n"
      "  [--mem_limit=SIZE] [--alloc=cluster|global] [--batch=on|off] [--free=async|sync]\n"
      "  [--filter=NBDKIT_FILTER] [--operations=N] [--connections=N]\n"
      "  [--sharing_connections=N] [--threads=N]\n"
      "CSWAP_SEED in the environment repeats a run.\n",
      wrong.c_str());
  std::exit(2);
}

std::string* text_named(Settings& settings, const std::string& name) {
  if (name == "compressor") return &settings.compressor;
  if (name == "same_filled") return &settings.same_filled;
  if (name == "checksum") return &settings.checksum;
  if (name == "mem_limit") return &settings.mem_limit;
  if (name == "alloc") return &settings.alloc;
  if (name == "batch") return &settings.batch;
  if (name == "free") return &settings.free;
  if (name == "filter") return &settings.filter;
  return nullptr;
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
    if (std::string* const text = text_named(settings, name)) {
      *text = value;
      continue;
    }
    uint64_t* const number = number_named(settings, name);
    if (number == nullptr) usage(argument);
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *number);
    if (error != std::errc() || end != value.data() + value.size()) usage(argument);
  }
  return settings;
}

}  // namespace cswap::test
