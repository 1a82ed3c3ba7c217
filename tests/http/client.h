// A blocking HTTP client over a plain socket, and the other hands a server test needs.
//
// Nothing here waits without an end: after kPatience a read gives up and the test fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/stats_server.h"
#include "plugin/unique_fd.h"

namespace cswap::test {

inline constexpr std::chrono::seconds kPatience{30};

struct Reply {
  int status = 0;
  std::map<std::string, std::string> fields;  // names in lower case
  std::string body;
};

class Client {
 public:
  static Client to_unix(const std::string& path);
  static Client to_loopback(uint16_t port);

  // A unix socket to be connected later, when there may be no descriptor left.
  static Client unconnected();
  void connect_unix(const std::string& path);

  // False when the server has closed. Never raises SIGPIPE.
  bool send(std::string_view bytes);

  // The next reply; status 0 when the connection ended instead.
  Reply receive(bool head_only = false);

  // GET on this connection, kept alive.
  Reply get(const std::string& target);

  // Reads and drops until the server closes or resets; false when it does neither in time.
  bool closed_by_server();

  // Whether the server has closed by now; reads nothing and waits for nothing.
  [[nodiscard]] bool is_closed() const;

  // The same, but waits for it; false when it does not come in time.
  [[nodiscard]] bool wait_closed() const;

  // Whether bytes or the end came within the time.
  [[nodiscard]] bool readable_within(std::chrono::milliseconds time) const;

  void finish_sending();
  void close() { fd_.reset(); }
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  explicit Client(UniqueFd fd);
  bool fill();

  UniqueFd fd_;
  std::string received_;
};

inline std::string get_request(const std::string& target, const std::string& fields = "") {
  return "GET " + target + " HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n";
}

// A directory for socket files, removed with everything in it.
class TempDir {
 public:
  TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();
  [[nodiscard]] std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A snapshot with one tenant of each name, and counters that differ from zero.
[[nodiscard]] PoolSnapshot sample_pool(const std::vector<std::string>& names = {""});

// A server on a unix socket in a directory of its own, started.
class UnixServer {
 public:
  explicit UnixServer(
      const StatsLimits& limits = {},
      std::function<PoolSnapshot()> snapshot = [] { return sample_pool(); });
  [[nodiscard]] Client connect() const { return Client::to_unix(path_); }
  // One request on a connection of its own.
  [[nodiscard]] Reply get(const std::string& target) const { return connect().get(target); }
  [[nodiscard]] const std::string& path() const { return path_; }
  StatsServer& server() { return server_; }

 private:
  TempDir dir_;
  std::string path_;
  StatsServer server_;
};

// Descriptors open in this process.
[[nodiscard]] size_t open_descriptors();

[[nodiscard]] StatsEndpoint unix_endpoint(const std::string& path);
[[nodiscard]] StatsEndpoint tcp_endpoint(const std::string& host, uint16_t port);

}  // namespace cswap::test
