// The event loop of the statistics endpoint: accepting, deadlines, and who has to give way when all
// places are taken. HTTP itself is HttpSession's.
//
// One thread runs it and everything in it; only stop() is for other threads. It must be made in the
// process that runs it: an epoll descriptor does not survive a fork in a usable state.
#pragma once

#include <array>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "plugin/http_session.h"
#include "plugin/stats_server.h"
#include "plugin/unique_fd.h"

namespace cswap {

class StatsLoop {
 public:
  // Keeps references to hooks and limits. Throws what Asio throws when it cannot have descriptors.
  StatsLoop(std::vector<UniqueFd> sockets, const StatsHooks& hooks, const StatsLimits& limits);
  ~StatsLoop();

  // Serves until stop(). A failure, such as std::bad_alloc, ends the connection that it happened
  // on and nothing else.
  void run() noexcept;

  // Any thread, and before run() too.
  void stop() { io_.stop(); }

 private:
  using Clock = std::chrono::steady_clock;
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Error = boost::system::error_code;

  static constexpr size_t kInputBytes = 4096;

  // In order of worth: the first gives way first.
  enum class Rank {
    kLeaving,   // has its last reply, and only has to read it
    kUnproven,  // never took a whole reply
    kIdle,      // between requests
    kBusy,      // within a request or its reply
  };

  struct Connection {
    Connection(boost::asio::io_context& io, const HttpLimits& limits) : socket(io), http(limits) {}

    [[nodiscard]] Rank rank() const;

    Socket socket;
    HttpSession http;
    std::array<char, kInputBytes> input{};
    std::string output;  // the reply being written
    HttpState phase = HttpState::kHead;
    Clock::time_point request_start;  // or of the connection, for its first
    Clock::time_point phase_start;
    Clock::time_point deadline;
    bool proven = false;
    bool close_after_reply = false;
    bool leaving = false;
    bool closed = false;
  };
  using ConnectionPtr = std::shared_ptr<Connection>;

  struct Listener {
    Listener(boost::asio::io_context& io, UniqueFd fd) : socket(io, fd.get()), retry(io) {
      (void)fd.release();
    }
    boost::asio::posix::stream_descriptor socket;
    boost::asio::steady_timer retry;
    bool waiting = false;  // for the socket or for the timer
  };

  // Accepting
  void wait_for_client(Listener& listener);
  void wait_to_retry(Listener& listener, Clock::duration delay);
  void accept(Listener& listener);
  [[nodiscard]] Clock::duration make_room();

  // One connection; each of these ends by starting the next step or by closing
  void read(const ConnectionPtr& connection);
  void on_read(const ConnectionPtr& connection, const Error& error, size_t bytes);
  void proceed(const ConnectionPtr& connection);
  void write_reply(const ConnectionPtr& connection);
  void on_written(const ConnectionPtr& connection, const Error& error);
  void leave(const ConnectionPtr& connection);
  void close(const ConnectionPtr& connection) noexcept;
  template <typename Step>
  void guarded(const ConnectionPtr& connection, Step step) noexcept;

  // Deadlines: one timer, set to the earliest
  void set_deadline(Connection& connection, Clock::time_point deadline);
  void arm_timer(Clock::time_point at);
  void on_timer();

  void limit_unsent_replies();
  void log_failure(const char* what) noexcept;

  const StatsHooks& hooks_;
  const StatsLimits& limits_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer timer_;
  Clock::time_point timer_at_ = Clock::time_point::max();  // max when no wait is pending
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<ConnectionPtr> connections_;
  size_t unsent_bytes_ = 0;  // sum over the connections' output
  Clock::time_point quiet_until_{};
};

}  // namespace cswap
