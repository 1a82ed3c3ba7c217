#include "tests/support/nbd_server.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "tests/support/await.h"
#include "tests/support/nbd_client.h"
#include "tests/support/switches.h"

namespace cswap::test {
namespace {

// What no log may hold: of sanitizers, of the C++ runtime, of the plugin's own checks.
constexpr std::array<std::string_view, 5> kForbidden = {
    "Sanitizer:", "runtime error:", "terminate called", "pure virtual", "broken invariant"};

std::string http_get(const std::string& socket_path, const std::string& target) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof address.sun_path - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  timeval patience{};
  patience.tv_sec = kPatience.count();
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::string reply;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    const std::string request =
        "GET " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    std::array<char, 16384> buffer;
    ssize_t n = ::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    while (n > 0) {
      n = ::recv(fd, buffer.data(), buffer.size(), 0);
      if (n > 0) reply.append(buffer.data(), static_cast<size_t>(n));
    }
  }
  const int error = errno;
  ::close(fd);
  const size_t body = reply.find("\r\n\r\n");
  if (!reply.starts_with("HTTP/1.1 200") || body == std::string::npos) {
    throw std::runtime_error("GET " + target + " from " + socket_path + ": '" + reply + "', " +
                             std::strerror(error));
  }
  return reply.substr(body + 4);
}

// The log without a report of leaks, if none of them is the plugin's. A suppression of the leak
// sanitizer's would match any frame, and nbdkit's are in all of the plugin's stacks.
std::string without_foreign_leaks(const std::string& log) {
  const size_t begin = log.find("ERROR: LeakSanitizer: detected memory leaks");
  if (begin == std::string::npos) return log;
  const size_t summary = log.find("SUMMARY: AddressSanitizer:", begin);
  if (summary == std::string::npos) return log;
  const std::string report = log.substr(begin, summary - begin);
  // A plugin that nbdkit has unloaded by then is unknown.
  const bool ours = report.find("cswap") != std::string::npos ||
                    report.find("<unknown module>") != std::string::npos;
  if (ours) return log;
  const size_t end = log.find('\n', summary);
  return log.substr(0, begin) + (end == std::string::npos ? "" : log.substr(end));
}

// What of the gauges disagrees; empty when nothing does.
std::string disagreement(const Stats& stats) {
  if (stats["mem_used_total"] != stats["pool_total_size"] + stats["metadata_size"]) {
    return "memory used is objects and metadata";
  }
  if (stats["orig_data_size"] != stats["stored_pages"] * 4096) return "original bytes are pages";
  if (stats["same_pages"] + stats["huge_pages"] > stats["stored_pages"]) {
    return "same-filled and raw pages are stored pages";
  }
  if (stats["huge_pages"] * 4096 > stats["compr_data_size"]) return "raw pages have all bytes";
  if (stats["compr_data_size"] > stats["pool_total_size"]) return "objects are resident";
  if (stats["mem_used_total"] > stats["mem_used_max"]) return "the peak is the peak";
  const uint64_t limit = stats["mem_limit"];
  if (limit == 0) return "";
  if (stats["mem_used_total"] > limit) return "memory used is within the limit";
  if (stats["headroom"] != limit - stats["mem_used_total"]) return "headroom is what is left";
  return "";
}

// Those that the tests run under, but for the ones that the parameters have.
Words switches_not_in(const Words& parameters) {
  Words rest = switch_parameters();
  std::erase_if(rest, [&](const std::string& word) {
    const std::string key = word.substr(0, word.find('=') + 1);
    return std::ranges::any_of(parameters, [&](const auto& p) { return p.starts_with(key); });
  });
  return rest;
}

}  // namespace

std::string plugin_path() { return CSWAP_PLUGIN_PATH; }

Words server_environment(const Words& added) {
  Words environment = added;
  const std::string runtime = CSWAP_SANITIZER_RUNTIME;
  if (runtime.empty()) return environment;
  const auto preload = std::find_if(environment.begin(), environment.end(), [](const auto& entry) {
    return entry.starts_with("LD_PRELOAD=");
  });
  if (preload == environment.end()) {
    environment.push_back("LD_PRELOAD=" + runtime);
  } else {
    *preload = "LD_PRELOAD=" + runtime + ":" + preload->substr(std::strlen("LD_PRELOAD="));
  }
  // The leaks that count are picked from the log: nbdkit has some of its own.
  environment.push_back("LSAN_OPTIONS=exitcode=0");
  environment.push_back("TSAN_OPTIONS=suppressions=" CSWAP_SUPPRESSIONS "/tsan");
  environment.push_back("UBSAN_OPTIONS=print_stacktrace=1");
  return environment;
}

Words nbdkit_command(const Words& options, const Words& parameters) {
  Words command = {"nbdkit"};
  command.insert(command.end(), options.begin(), options.end());
  command.push_back(plugin_path());
  command.insert(command.end(), parameters.begin(), parameters.end());
  return command;
}

Output run_nbdkit(const Words& options, const Words& parameters) {
  return run(nbdkit_command(options, parameters), server_environment());
}

void await_no_connections(pid_t pid) {
  // The thread sanitizer has a thread of its own, under the same name.
  constexpr auto kIdle = kThreadSanitizer ? 2 : 1;
  await("the server to end its connections", [pid] {
    const Words names = thread_names(pid);
    return std::ranges::count(names, "nbdkit") <= kIdle;
  });
}

void check_log(const std::string& log) {
  const std::string rest = without_foreign_leaks(log);
  for (const std::string_view forbidden : kForbidden) {
    if (rest.find(forbidden) == std::string::npos) continue;
    throw std::runtime_error("the server's log has '" + std::string(forbidden) + "':\n" + log);
  }
}

uint64_t Stats::operator[](const std::string& name) const {
  const std::string key = "\"" + name + "\":";
  const size_t at = json_.find(key);
  if (at == std::string::npos) throw std::runtime_error("no " + name + " in\n" + json_);
  const char* const value = json_.c_str() + at + key.size();
  if (std::strncmp(value, "true", 4) == 0) return 1;
  return std::strtoull(value, nullptr, 10);
}

Stats get_stats(const std::string& socket_path) {
  return Stats(http_get(socket_path, "/stats.json"));
}

NbdServer::NbdServer(const ServerOptions& options)
    : socket_(dir_.file("nbd.sock")), stats_socket_(dir_.file("stats.sock")) {
  Words nbdkit = {"-f", "-U", socket_, "-P", dir_.file("pid")};
  nbdkit.insert(nbdkit.end(), options.nbdkit.begin(), options.nbdkit.end());
  Words parameters = options.parameters;
  const Words switches = switches_not_in(parameters);
  parameters.insert(parameters.end(), switches.begin(), switches.end());
  if (options.stats) parameters.push_back("stats=unix:" + stats_socket_);
  Words command = options.wrapper;
  const Words rest = nbdkit_command(nbdkit, parameters);
  command.insert(command.end(), rest.begin(), rest.end());
  process_ =
      Process(command, server_environment(options.environment), dir_.file("log"), dir_.file("log"));
  if (!process_.wait_for_file(dir_.file("pid"))) {
    throw std::runtime_error("nbdkit did not start:\n" + log());
  }
  // The file is there before the plugin's own threads are; a handshake is answered after them.
  const NbdClient first(socket_);
}

Stats NbdServer::stats_when(const std::string& what,
                            const std::function<bool(const Stats&)>& met) const {
  Stats last = stats();
  const auto holds = [&] {
    last = stats();
    return met(last);
  };
  try {
    await(what, holds);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(std::string(error.what()) + ":\n" + last.json());
  }
  return last;
}

Stats NbdServer::consistent_stats() const {
  std::string wrong;
  try {
    return stats_when("gauges that agree", [&](const Stats& stats) {
      wrong = disagreement(stats);
      return wrong.empty();
    });
  } catch (const std::runtime_error& error) {
    throw std::runtime_error("gauges disagree: " + wrong + "\n" + error.what());
  }
}

void NbdServer::stop() {
  await_no_connections(pid());
  process_.signal(SIGTERM);
  const Exit exit = process_.wait();
  const std::string said = log();
  check_log(said);
  if (exit.clean()) return;
  throw std::runtime_error("nbdkit ended with code " + std::to_string(exit.code) + ", signal " +
                           std::to_string(exit.signal) + ":\n" + said);
}

void NbdServer::kill() {
  process_.signal(SIGKILL);
  process_.wait();
  check_log(log());
}

}  // namespace cswap::test
