// A real nbdkit that serves the plugin, for tests.
//
// The plugin under test and the sanitizer's runtime, which has to be loaded before an nbdkit that
// was built without one, are the build's. Ending a server also checks its log: a report of a
// sanitizer, or a C++ runtime that gave up, fails the test that caused it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tests/support/process.h"

namespace cswap::test {

// Which sanitizers the build has.
inline constexpr std::string_view kSanitize = CSWAP_SANITIZE_NAME;
inline constexpr bool kThreadSanitizer = kSanitize.find("thread") != std::string_view::npos;
inline constexpr bool kAddressSanitizer = kSanitize.find("address") != std::string_view::npos;
inline constexpr bool kSanitized = !kSanitize.empty();

// Path of the plugin under test.
[[nodiscard]] std::string plugin_path();
// Variables that any command that starts nbdkit needs.
[[nodiscard]] Words server_environment(const Words& added = {});
// "nbdkit OPTIONS... PLUGIN PARAMETERS...".
[[nodiscard]] Words nbdkit_command(const Words& options, const Words& parameters);
// Runs such a command to its end.
Output run_nbdkit(const Words& options, const Words& parameters);
// Waits until nbdkit has ended the threads of its connections, whose clients have gone.
void await_no_connections(pid_t pid);
// Throws when a server's log holds what no server may say.
void check_log(const std::string& log);

// The numbers of one GET /stats.json. The names of a server with one tenant are unambiguous.
class Stats {
 public:
  explicit Stats(std::string json) : json_(std::move(json)) {}
  // Throws when there is no such number. true and false are 1 and 0.
  [[nodiscard]] uint64_t operator[](const std::string& name) const;
  [[nodiscard]] const std::string& json() const { return json_; }

 private:
  std::string json_;
};

// Throws when nobody answers.
[[nodiscard]] Stats get_stats(const std::string& socket_path);
struct ServerOptions {
  Words parameters = {"64M"};  // the plugin's
  Words nbdkit;                // nbdkit's own options
  Words environment;           // NAME=VALUE
  Words wrapper;               // a command that execs nbdkit: "prlimit", "--memlock=65536"
  bool stats = true;
};

// nbdkit in the foreground on a unix socket in a directory of its own, ready to serve. Killed when
// destroyed; a test that reaches its end calls stop(). It has the switches that the tests run
// under, see switches.h, but for those that its own parameters name.
class NbdServer {
 public:
  // Throws with nbdkit's message when it does not start.
  explicit NbdServer(const ServerOptions& options);

  [[nodiscard]] const std::string& socket() const { return socket_; }
  [[nodiscard]] const std::string& stats_socket() const { return stats_socket_; }
  [[nodiscard]] pid_t pid() const { return process_.pid(); }
  [[nodiscard]] bool running() { return process_.running(); }
  [[nodiscard]] uint64_t status(const std::string& field) const {
    return proc_status(pid(), field);
  }
  [[nodiscard]] Stats stats() const { return get_stats(stats_socket_); }
  // Waits until they are so, as they may be only after what was displaced has been freed. Throws
  // with `what` and the last of them when they never are.
  Stats stats_when(const std::string& what, const std::function<bool(const Stats&)>& met) const;
  // Waits until the gauges of a server without requests agree with each other.
  Stats consistent_stats() const;
  [[nodiscard]] std::string log() const { return read_file(dir_.file("log")); }

  // SIGTERM; throws unless it ends cleanly.
  void stop();
  // SIGKILL.
  void kill();

 private:
  ScratchDir dir_;
  std::string socket_;
  std::string stats_socket_;
  Process process_;
};

}  // namespace cswap::test
