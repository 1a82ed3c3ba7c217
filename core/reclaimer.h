// The pool's background thread: frees what waits in the FreeQueues, and has memory that a discard
// left unused given back to the OS.
//
// It works in bites of one batch with pauses between, so that a request never waits long for the
// CPU behind it; when much waits it hurries. Requests never wait for it: a queue that is full makes
// them free themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "core/free_queue.h"

namespace cswap {

class Reclaimer {
 public:
  // Starts the thread, which calls `on_start` first if there is one, and `after_trim` when what a
  // trim displaced has been freed. Not to be made before a fork that the pool is to live through.
  // `queues` must outlive it. Throws std::system_error.
  Reclaimer(FreeQueues& queues, std::function<void()> after_trim, std::function<void()> on_start);
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;
  // Ends the thread; what waits stays where it is.
  ~Reclaimer();

  // After FreeQueues::put(). Costs a load unless the thread sleeps too soundly for the need.
  void wake(FreeQueues::Need need);
  // Pages were trimmed whose memory nothing will replace.
  void wake_for_trim();
  // Waits until nothing is left to do. For an idle pool: with requests it may never be so.
  void finish();

 private:
  // What the thread is told, and waits for a change of. Only the thread lowers it.
  enum Signal : uint32_t { kNothing, kSome, kMuch, kStop };

  void run();
  void work();
  bool free_waiting();
  void raise(Signal to);

  FreeQueues& queues_;
  const std::function<void()> after_trim_;
  std::atomic<uint32_t> signal_{kNothing};
  std::atomic<bool> trimmed_{false};
  std::atomic<bool> asleep_{false};  // with nothing to do; for finish()
  std::thread thread_;               // last: it uses all of the above
};

}  // namespace cswap
