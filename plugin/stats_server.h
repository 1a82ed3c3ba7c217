// Serves the statistics over HTTP: GET /metrics, /stats.json and /locks.
//
// The lifecycle follows nbdkit's, which forks after get_ready unless it runs in the foreground:
//   bind()   get_ready: opens the sockets, so that errors reach the user; no thread yet
//   start()  after_fork: makes the event loop and its one thread in the process that serves
//   stop()   cleanup or unload: ends both, removes the socket file
// No client can hold it up: every phase of a connection has a deadline, the number of connections
// and all memory are bounded, and when all places are taken a newcomer gets that of a client that
// is worth less (see make_room in the source).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "core/stats.h"
#include "plugin/http_session.h"
#include "plugin/stats_endpoint.h"
#include "plugin/stats_listener.h"

namespace cswap {

struct StatsLimits {
  using Duration = std::chrono::milliseconds;

  size_t connections = 64;
  HttpLimits http;
  Duration head{5'000};      // from the connection, or a later request's first byte, to its head
  Duration request{10'000};  // the same, to the end of its body
  Duration reply{10'000};    // to write one reply
  Duration idle{120'000};    // between requests; longer than any scrape interval in use
  Duration linger{2'000};    // after the last reply, for the client to read it and close
  // A new connection is not displaced before it had this long to send its request. With all places
  // taken it also bounds how fast connections are accepted.
  Duration newcomer{20};
  Duration accept_retry{100};  // after accept failed, for example for lack of descriptors
  // Replies not yet sent, all connections together; above it the slowest readers are cut off.
  size_t reply_bytes = 32 * 1024 * 1024;
};

struct StatsHooks {
  std::function<PoolSnapshot()> snapshot;       // called in the server's thread; must not block
  std::function<void()> on_thread_start;        // called first in the server's thread; may be empty
  std::function<void(const std::string&)> log;  // called in the server's thread; may be empty
};

// Not thread safe: bind, start, stop and the destructor are calls of the main thread.
class StatsServer {
 public:
  StatsServer(StatsEndpoint endpoint, StatsHooks hooks, const StatsLimits& limits = {});
  StatsServer(const StatsServer&) = delete;
  StatsServer& operator=(const StatsServer&) = delete;

  // The same as stop(), in any process: see there.
  ~StatsServer();

  // Opens the sockets. Returns "" or a message for the user that names the parameter. Once.
  [[nodiscard]] std::string bind(bool allow_public);

  // Starts the thread (name "cswap-stats", all signals blocked). Returns "" or a message. Once,
  // after bind(), in the process that is to serve.
  [[nodiscard]] std::string start();

  // Joins the thread, closes every connection and removes the socket file if it is still ours.
  // What else it may be called in: a process that bound and never started, as when start-up fails
  // or when nbdkit's parent exits after a fork: the file is then removed only if nobody listens on
  // it; and a fork of either, which only closes its copies. Again is harmless.
  void stop();

  // The TCP port served, 0 for a unix socket.
  [[nodiscard]] uint16_t port() const { return listener_.port(); }

 private:
  class Thread;

  const StatsEndpoint endpoint_;
  const StatsHooks hooks_;
  const StatsLimits limits_;
  StatsListener listener_;
  pid_t bound_in_ = 0;
  pid_t started_in_ = 0;
  std::unique_ptr<Thread> thread_;
};

}  // namespace cswap
