#include "plugin/stats_server.h"

#include <pthread.h>
#include <unistd.h>

#include <cassert>
#include <csignal>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "plugin/stats_loop.h"

namespace cswap {

// The event loop and the thread that runs it.
class StatsServer::Thread {
 public:
  Thread(std::vector<UniqueFd> sockets, const StatsHooks& hooks, const StatsLimits& limits)
      : loop_(std::move(sockets), hooks, limits), hooks_(hooks) {
    // nbdkit's signals are for its own threads.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { run(); });
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void join() {
    loop_.stop();
    thread_.join();
  }

 private:
  void run() {
    pthread_setname_np(pthread_self(), "cswap-stats");
    if (hooks_.on_thread_start) {
      try {
        hooks_.on_thread_start();
      } catch (...) {
        // The hook only makes the thread fitter; the statistics are served without it too.
      }
    }
    loop_.run();
  }

  StatsLoop loop_;
  const StatsHooks& hooks_;
  std::thread thread_;
};

StatsServer::StatsServer(StatsEndpoint endpoint, StatsHooks hooks, const StatsLimits& limits)
    : endpoint_(std::move(endpoint)), hooks_(std::move(hooks)), limits_(limits) {}

StatsServer::~StatsServer() { stop(); }

std::string StatsServer::bind(bool allow_public) {
  assert(bound_in_ == 0);
  std::string wrong = listener_.open(endpoint_, allow_public);
  if (wrong.empty()) bound_in_ = ::getpid();
  return wrong;
}

std::string StatsServer::start() {
  assert(bound_in_ != 0 && started_in_ == 0);
  started_in_ = ::getpid();
  try {
    thread_ = std::make_unique<Thread>(listener_.take_sockets(), hooks_, limits_);
  } catch (const std::exception& error) {
    return "stats=" + endpoint_.text() + ": cannot start the server's thread: " + error.what();
  }
  return "";
}

void StatsServer::stop() {
  const pid_t here = ::getpid();
  if (started_in_ == here) {
    if (thread_) thread_->join();
    // Before the sockets close with the loop, see remove_file().
    listener_.remove_file();
    thread_.reset();
  } else if (started_in_ == 0 && bound_in_ == here) {
    listener_.remove_file_unless_served();
  } else {
    // A fork has no such thread, so its handle can be neither joined nor destroyed.
    (void)thread_.release();
  }
}

}  // namespace cswap
