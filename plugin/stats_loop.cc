// A connection is always in exactly one step, a read or a write in flight, and its deadline stands
// for its phase:
//
//   accept -> kHead -> kBody -> kReply -+-> kIdle -> kHead ...   kept alive
//                                       +-> leaving              shut down, reads until the end
//
// Handlers that run after their connection was closed do nothing.
#include "plugin/stats_loop.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <exception>
#include <new>
#include <tuple>
#include <utility>

namespace cswap {
namespace {

namespace asio = boost::asio;

// A failing snapshot must not fill the log.
constexpr std::chrono::seconds kLogInterval{10};

}  // namespace

StatsLoop::Rank StatsLoop::Connection::rank() const {
  if (leaving) return Rank::kLeaving;
  if (!proven) return Rank::kUnproven;
  return phase == HttpState::kIdle ? Rank::kIdle : Rank::kBusy;
}

StatsLoop::StatsLoop(std::vector<UniqueFd> sockets, const StatsHooks& hooks,
                     const StatsLimits& limits)
    : hooks_(hooks), limits_(limits), io_(1), work_(io_.get_executor()), timer_(io_) {
  for (UniqueFd& socket : sockets) {
    listeners_.push_back(std::make_unique<Listener>(io_, std::move(socket)));
  }
  connections_.reserve(limits_.connections);
}

StatsLoop::~StatsLoop() = default;

void StatsLoop::run() noexcept {
  while (!io_.stopped()) {
    try {
      // All of these are pending already, unless starting one of them failed.
      for (const auto& listener : listeners_) {
        if (!listener->waiting) wait_for_client(*listener);
      }
      if (timer_at_ == Clock::time_point::max()) on_timer();
      io_.run();
    } catch (...) {
      log_failure("out of resources");
      try {
        io_.run_for(limits_.accept_retry);
      } catch (...) {
        // Tried again from the top.
      }
    }
  }
}

void StatsLoop::wait_for_client(Listener& listener) {
  listener.waiting = false;
  listener.socket.async_wait(asio::posix::stream_descriptor::wait_read,
                             [this, &listener](const Error& error) {
                               listener.waiting = false;
                               if (error != asio::error::operation_aborted) accept(listener);
                             });
  listener.waiting = true;
}

void StatsLoop::wait_to_retry(Listener& listener, Clock::duration delay) {
  listener.waiting = false;
  listener.retry.expires_after(delay);
  listener.retry.async_wait([this, &listener](const Error& error) {
    if (error != asio::error::operation_aborted) wait_for_client(listener);
  });
  listener.waiting = true;
}

// One client a turn, so that the requests of those accepted before are read in between: else a
// crowd in the backlog would displace an honest client before its request was looked at.
void StatsLoop::accept(Listener& listener) {
  const Clock::duration delay = make_room();
  if (delay > Clock::duration::zero()) return wait_to_retry(listener, delay);
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  UniqueFd fd(::accept4(listener.socket.native_handle(), reinterpret_cast<sockaddr*>(&address),
                        &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    const int error = errno;
    // The client went away, or another's turn. Anything else would come again at once.
    const bool passing = error == EAGAIN || error == EINTR || error == ECONNABORTED;
    return passing ? wait_for_client(listener) : wait_to_retry(listener, limits_.accept_retry);
  }
  try {
    auto connection = std::make_shared<Connection>(io_, limits_.http);
    connection->socket.assign({address.ss_family, 0}, fd.get());
    (void)fd.release();
    connections_.push_back(connection);
    guarded(connection, [&] {
      connection->request_start = connection->phase_start = Clock::now();
      set_deadline(*connection, connection->phase_start + limits_.head);
      read(connection);
    });
  } catch (const std::exception& error) {
    log_failure(error.what());
  }
  wait_for_client(listener);
}

// Closes the connection that is worth least when all places are taken: the lowest rank, and in it
// the one that has been in its state longest. Returns how long to wait when that one is too new.
StatsLoop::Clock::duration StatsLoop::make_room() {
  if (connections_.size() < limits_.connections) return Clock::duration::zero();
  const auto worth = [](const ConnectionPtr& connection) {
    const Rank rank = connection->rank();
    return std::tuple(
        rank, rank == Rank::kUnproven ? connection->request_start : connection->phase_start);
  };
  const ConnectionPtr least = *std::min_element(
      connections_.begin(), connections_.end(),
      [&worth](const ConnectionPtr& a, const ConnectionPtr& b) { return worth(a) < worth(b); });
  if (least->rank() == Rank::kUnproven) {
    const Clock::duration left = least->request_start + limits_.newcomer - Clock::now();
    if (left > Clock::duration::zero()) return left;
  }
  close(least);
  return Clock::duration::zero();
}

template <typename Step>
void StatsLoop::guarded(const ConnectionPtr& connection, Step step) noexcept {
  if (connection->closed) return;
  try {
    step();
  } catch (const std::exception& error) {
    close(connection);
    log_failure(error.what());
  } catch (...) {
    close(connection);
    log_failure("unknown exception");
  }
}

void StatsLoop::read(const ConnectionPtr& connection) {
  connection->socket.async_read_some(
      asio::buffer(connection->input), [this, connection](const Error& error, size_t bytes) {
        guarded(connection, [&] { on_read(connection, error, bytes); });
      });
}

void StatsLoop::on_read(const ConnectionPtr& connection, const Error& error, size_t bytes) {
  if (error) return close(connection);
  if (connection->leaving) return read(connection);
  connection->http.receive({connection->input.data(), bytes});
  proceed(connection);
}

void StatsLoop::proceed(const ConnectionPtr& connection) {
  const HttpState state = connection->http.state();
  if (state == HttpState::kReply) return write_reply(connection);
  if (state != connection->phase) {
    const HttpState before = std::exchange(connection->phase, state);
    connection->phase_start = Clock::now();
    // A body in the same packet as its head has skipped kHead.
    if (before == HttpState::kIdle || before == HttpState::kReply) {
      connection->request_start = connection->phase_start;
    }
    const auto deadline = state == HttpState::kIdle
                              ? connection->phase_start + limits_.idle
                              : connection->request_start +
                                    (state == HttpState::kHead ? limits_.head : limits_.request);
    set_deadline(*connection, deadline);
  }
  read(connection);
}

void StatsLoop::write_reply(const ConnectionPtr& connection) {
  limit_unsent_replies();
  if (connection->closed) return;
  HttpReply reply = connection->http.reply(hooks_.snapshot);
  connection->phase = HttpState::kReply;
  connection->phase_start = Clock::now();
  connection->close_after_reply = reply.close;
  connection->output = std::move(reply.bytes);
  unsent_bytes_ += connection->output.size();
  set_deadline(*connection, connection->phase_start + limits_.reply);
  asio::async_write(connection->socket, asio::buffer(connection->output),
                    [this, connection](const Error& error, size_t) {
                      guarded(connection, [&] { on_written(connection, error); });
                    });
}

void StatsLoop::on_written(const ConnectionPtr& connection, const Error& error) {
  if (error) return close(connection);
  unsent_bytes_ -= connection->output.size();
  connection->output = std::string();
  connection->proven = true;
  if (connection->close_after_reply) return leave(connection);
  proceed(connection);
}

// Closing at once, with bytes of the client still unread, would reset the connection, and the reset
// could overtake the reply.
void StatsLoop::leave(const ConnectionPtr& connection) {
  Error ignored;
  connection->socket.shutdown(Socket::shutdown_send, ignored);
  connection->leaving = true;
  connection->phase_start = Clock::now();
  set_deadline(*connection, connection->phase_start + limits_.linger);
  read(connection);
}

void StatsLoop::close(const ConnectionPtr& connection) noexcept {
  if (std::exchange(connection->closed, true)) return;
  // The output itself stays until the write's handler lets go of the connection.
  unsent_bytes_ -= connection->output.size();
  Error ignored;
  connection->socket.close(ignored);
  std::erase(connections_, connection);
}

void StatsLoop::set_deadline(Connection& connection, Clock::time_point deadline) {
  connection.deadline = deadline;
  if (deadline < timer_at_) arm_timer(deadline);
}

void StatsLoop::arm_timer(Clock::time_point at) {
  timer_at_ = Clock::time_point::max();
  timer_.expires_at(at);
  timer_.async_wait([this](const Error& error) {
    if (error == asio::error::operation_aborted) return;
    timer_at_ = Clock::time_point::max();
    on_timer();
  });
  timer_at_ = at;
}

void StatsLoop::on_timer() {
  const Clock::time_point now = Clock::now();
  Clock::time_point next = Clock::time_point::max();
  for (size_t i = connections_.size(); i-- > 0;) {
    const ConnectionPtr connection = connections_[i];
    if (connection->deadline <= now) {
      close(connection);
    } else {
      next = std::min(next, connection->deadline);
    }
  }
  if (next != Clock::time_point::max()) arm_timer(next);
}

void StatsLoop::limit_unsent_replies() {
  while (unsent_bytes_ > limits_.reply_bytes) {
    const ConnectionPtr slowest =
        *std::min_element(connections_.begin(), connections_.end(),
                          [](const ConnectionPtr& a, const ConnectionPtr& b) {
                            return std::tuple(a->output.empty(), a->phase_start) <
                                   std::tuple(b->output.empty(), b->phase_start);
                          });
    close(slowest);
  }
}

void StatsLoop::log_failure(const char* what) noexcept {
  const Clock::time_point now = Clock::now();
  if (!hooks_.log || now < quiet_until_) return;
  quiet_until_ = now + kLogInterval;
  try {
    hooks_.log(std::string("statistics: a connection was dropped: ") + what);
  } catch (...) {
    // Out of memory: the log line is the least to lose.
  }
}

}  // namespace cswap
