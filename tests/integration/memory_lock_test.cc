// The server stays in memory when it is told to, however it is started.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/integration/helpers.h"
#include "tests/integration/start_modes.h"

namespace cswap::test {
namespace {

constexpr Way kForking[] = {Way::kForeground, Way::kDaemon, Way::kRun};
constexpr uint64_t kCapSysResource = 1ull << 24;
constexpr uint64_t kPfMemallocNoio = 0x80000;

uint64_t own_capabilities() {
  std::istringstream status(read_file("/proc/self/status"));
  std::string line;
  uint64_t capabilities = 0;
  while (std::getline(status, line)) {
    if (line.starts_with("CapEff:")) capabilities = std::strtoull(line.c_str() + 7, nullptr, 16);
  }
  return capabilities;
}

bool may_lock() {
  if (::geteuid() == 0) return true;
  MESSAGE("skipped: only root may lock as much as is needed");
  return false;
}

uint64_t locked_kib(Way way, const Words& options, const Words& parameters) {
  CAPTURE(std::string(way_name(way)));
  const auto server = start(way, options, parameters);
  const uint64_t kib = proc_status(server->pid(), "VmLck");
  server->stop();
  return kib;
}

// Shadow memory is locked and counted too, or refuses to be.
TEST_SUITE_BEGIN("locked" * doctest::skip(kSanitized));

TEST_CASE("--swap locks the serving process in the foreground, as a daemon and with --run") {
  if (!may_lock()) return;
  for (const Way way : kForking) CHECK(locked_kib(way, {"--swap"}, {"64M"}) > 0);
}

TEST_CASE("mlock=on locks without --swap") {
  if (!may_lock()) return;
  for (const Way way : kForking) CHECK(locked_kib(way, {}, {"64M", "mlock=on"}) > 0);
}

TEST_CASE("nothing is locked without --swap, nor with mlock=off") {
  if (!may_lock()) return;
  for (const Way way : kForking) {
    CHECK(locked_kib(way, {}, {"64M"}) == 0);
    CHECK(locked_kib(way, {"--swap"}, {"64M", "mlock=off"}) == 0);
  }
}

TEST_CASE("a locked server without data is as small as an unlocked one, at every size") {
  if (!may_lock()) return;
  for (const Way way : kForking) {
    for (const char* size : {"4G", "16T"}) {
      CAPTURE(std::string(size));
      const auto rss = [&](const Words& options) {
        const auto server = start(way, options, {size});
        const uint64_t kib = proc_status(server->pid(), "VmRSS");
        server->stop();
        return kib;
      };
      CHECK(rss({"--swap"}) < rss({}) + 64 * 1024);
    }
  }
}

TEST_CASE("memory taken late is locked too and none of it is swapped out") {
  if (!may_lock()) return;
  for (const Way way : kForking) {
    const auto server = start(way, {"--swap"}, {"4G"});
    for (uint64_t at = 0; at < 64 * kMiB; at += kMiB) {
      REQUIRE(server->client().write(at, random_bytes(kMiB, at)) == 0);
    }
    const uint64_t rss = proc_status(server->pid(), "VmRSS");
    CHECK(rss > 64 * 1024);
    CHECK(proc_status(server->pid(), "VmLck") >= rss);
    CHECK(proc_status(server->pid(), "VmSwap") == 0);
    // The kernel's own count of locked pages: all but what it maps itself.
    const std::string rollup =
        read_file("/proc/" + std::to_string(server->pid()) + "/smaps_rollup");
    const size_t at = rollup.find("\nLocked:");
    REQUIRE(at != std::string::npos);
    CHECK(std::strtoull(rollup.c_str() + at + 8, nullptr, 10) >= 64 * 1024);
    REQUIRE(server->client().trim(0, 64 * kMiB) == 0);
    await("locked memory to fall",
          [&] { return proc_status(server->pid(), "VmRSS") < rss - 56 * 1024; });
    server->stop();
  }
}

// Whether this process may give a child such a limit.
bool may_set_limit(uint64_t bytes) {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  if (bytes <= limit.rlim_max || (own_capabilities() & kCapSysResource) != 0) return true;
  MESSAGE("skipped: raising RLIMIT_MEMLOCK needs CAP_SYS_RESOURCE");
  return false;
}

// nbdkit as a user without rights and with this limit on locked memory. The build may be where
// that user cannot read.
Output start_as_nobody(const std::string& memlock, const Words& options, const Words& parameters) {
  const ScratchDir dir;
  const std::string plugin = dir.file("nbdkit-cswap-plugin.so");
  std::filesystem::copy_file(plugin_path(), plugin);
  ::chmod(dir.path().c_str(), 0755);
  ::chmod(plugin.c_str(), 0755);
  Words command = {"setpriv", "--reuid=65534",        "--regid=65534", "--clear-groups",
                   "prlimit", "--memlock=" + memlock, "nbdkit",        "-U",
                   "-"};
  command.insert(command.end(), options.begin(), options.end());
  command.push_back(plugin);
  command.insert(command.end(), parameters.begin(), parameters.end());
  command.insert(
      command.end(),
      {"--run", "grep VmLck /proc/$(cat /proc/self/stat | cut -d' ' -f4)/status; exit 0"});
  return run(command, {"TMPDIR=/tmp"});
}

TEST_CASE("a limit on locked memory that is too small fails the start and is named") {
  if (!may_lock()) return;
  const Output tiny = start_as_nobody("65536", {}, {"64M", "mlock=on"});
  CAPTURE(tiny.err);
  CHECK(!tiny.exit.clean());
  CHECK(contains(tiny.err, "RLIMIT_MEMLOCK"));
  CHECK(contains(tiny.err, "64 KiB"));
}

TEST_CASE("--swap with a limit that holds nbdkit but not the pool fails the start and names it") {
  if (!may_lock() || !may_set_limit(300 * kMiB)) return;
  const Output middle = start_as_nobody(std::to_string(300 * kMiB), {"--swap"}, {"64M"});
  CAPTURE(middle.err);
  CAPTURE(middle.out);
  CHECK(!middle.exit.clean());
  CHECK(contains(middle.err, "RLIMIT_MEMLOCK"));
}

TEST_CASE("--swap with a limit that does not hold nbdkit itself fails the start") {
  if (!may_lock()) return;
  const Output tiny = start_as_nobody("65536", {"--swap"}, {"64M"});
  CAPTURE(tiny.err);
  CHECK(!tiny.exit.clean());
  CHECK(contains(tiny.err, "lock"));
}

TEST_CASE("a user without rights and without a limit may serve unlocked and locked") {
  if (!may_lock()) return;
  CHECK(start_as_nobody("65536", {}, {"64M"}).exit.clean());
  if (!may_set_limit(RLIM_INFINITY)) return;
  CHECK(start_as_nobody("unlimited", {}, {"64M", "mlock=on"}).exit.clean());
}

TEST_SUITE_END();

uint64_t task_flags(const std::filesystem::path& task) {
  const std::string stat = read_file(task / "stat");
  std::istringstream rest(stat.substr(stat.rfind(')') + 2));
  std::string field;
  for (int i = 0; i < 6; ++i) rest >> field;  // state ppid pgrp session tty tpgid
  uint64_t flags = 0;
  rest >> flags;
  return flags;
}

TEST_CASE("every thread is an I/O flusher where that is allowed") {
  if ((own_capabilities() & kCapSysResource) == 0) {
    MESSAGE("skipped: PR_SET_IO_FLUSHER needs CAP_SYS_RESOURCE");
    return;
  }
  for (const Way way : kWays) {
    const auto server = start(way, {}, {"64M"});
    REQUIRE(server->client().write(0, random_bytes(kPageBytes, 1)) == 0);
    const std::string tasks = "/proc/" + std::to_string(server->pid()) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      CHECK((task_flags(task.path()) & kPfMemallocNoio) != 0);
    }
    server->stop();
  }
}

}  // namespace
}  // namespace cswap::test
