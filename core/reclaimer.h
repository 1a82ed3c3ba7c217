// The pool's background thread: frees what waits in the FreeQueues, and has memory that a discard
// left unused given back to the OS.
//
// It lets objects gather for some milliseconds, since each time that it runs some request may have
// to wait for the CPU. Requests never wait for it otherwise: a queue that is full makes them free
// themselves. While trims go on, memory goes back ten times a second: pages are then freed in
// longer runs, or used again before.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include "core/free_queue.h"

namespace cswap {

class Reclaimer {
 public:
  // Starts the thread, which calls `on_start` first if there is one, and `give_back` when memory is
  // to go back to the OS: what a trim displaced has been freed, or nothing has been freed for a
  // second. Not to be made before a fork that the pool is to live through. `queues` must outlive
  // it. Throws std::system_error.
  Reclaimer(FreeQueues& queues, std::function<void()> give_back, std::function<void()> on_start);
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
  enum Signal : uint32_t { kNothing, kSome, kMuch, kFinish, kStop };

  void run();
  void sleep();
  bool free_waiting();
  void give_back_trimmed(bool hurry);
  void give_back();
  void lower_signal(uint32_t told, Signal to);
  void raise(Signal to);

  FreeQueues& queues_;
  const std::function<void()> give_back_;
  std::atomic<uint32_t> signal_{kNothing};
  std::atomic<bool> trimmed_{false};
  // The thread's own.
  std::chrono::steady_clock::time_point next_trim_;  // when trims may next give memory back
  bool freed_ = false;                               // something since memory was given back
  std::atomic<bool> asleep_{false};                  // with nothing to do; for finish()
  std::thread thread_;                               // last: it uses all of the above
};

}  // namespace cswap
