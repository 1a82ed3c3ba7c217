#include "core/reclaimer.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <utility>

#include "core/futex.h"

namespace cswap {
namespace {

using namespace std::chrono_literals;

// How long a few objects wait for more: work in one go wakes the CPU once.
constexpr auto kGather = 10ms;
// Between two batches. 64 objects are freed in some 10 us.
constexpr auto kPause = 50us;
// With so many waiting there are no pauses.
constexpr uint64_t kBacklog = FreeQueues::kCapacity / 2;

// Signals are for the threads that the server's own handlers expect them in.
std::thread start_without_signals(std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    const sigset_t& mask;
    ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } const restore{before};
  return std::thread(std::move(body));
}

}  // namespace

Reclaimer::Reclaimer(FreeQueues& queues, std::function<void()> after_trim,
                     std::function<void()> on_start)
    : queues_(queues),
      after_trim_(std::move(after_trim)),
      thread_(start_without_signals([this, on_start = std::move(on_start)] {
        if (on_start) on_start();
        run();
      })) {
  pthread_setname_np(thread_.native_handle(), "cswap-reclaim");
}

Reclaimer::~Reclaimer() {
  raise(kStop);
  thread_.join();
}

void Reclaimer::wake(FreeQueues::Need need) {
  if (need != FreeQueues::Need::kNone) raise(need == FreeQueues::Need::kMuch ? kMuch : kSome);
}

void Reclaimer::wake_for_trim() {
  trimmed_.store(true);
  raise(kSome);
}

void Reclaimer::finish() {
  raise(kMuch);
  for (;;) {
    const uint32_t told = signal_.load();
    if (told == kNothing && asleep_.load()) return;
    futex_wait(signal_, told, 1ms);
  }
}

void Reclaimer::raise(Signal to) {
  // Sequentially consistent, as what run() does to both words: either this sees the signal lowered,
  // or the thread sees what it was raised for.
  uint32_t seen = signal_.load();
  while (seen < to) {
    if (signal_.compare_exchange_weak(seen, to)) {
      futex_wake(signal_);
      return;
    }
  }
}

void Reclaimer::run() {
  for (;;) {
    uint32_t told = signal_.load(std::memory_order_acquire);
    if (told == kStop) return;
    if (told == kNothing) {
      asleep_.store(true);
      futex_wait(signal_, kNothing, 0ns);
      asleep_.store(false);
      continue;
    }
    if (told == kSome) futex_wait(signal_, kSome, kGather);
    work();
    // Take the word back, then look again: who put something after the look finds it lowered.
    told = signal_.load(std::memory_order_relaxed);
    if (told == kStop) return;
    signal_.compare_exchange_strong(told, kNothing);
    if (queues_.waiting_objects_exactly() > 0 || trimmed_.load()) {
      raise(kSome);
    }
  }
}

void Reclaimer::work() {
  for (;;) {
    if (!free_waiting() || !trimmed_.exchange(false)) return;
    if (queues_.waiting_objects() == 0) return after_trim_();
    trimmed_.store(true);  // not all that was trimmed is freed yet
  }
}

// Until nothing waits for a moment: with a steady stream of overwrites something soon does again.
// False when the thread is to end.
bool Reclaimer::free_waiting() {
  while (queues_.free_batch_in_background() > 0) {
    const uint64_t waiting = queues_.waiting_objects();
    if (waiting == 0) break;
    const uint32_t told = signal_.load(std::memory_order_relaxed);
    if (told == kStop) return false;
    if (waiting < kBacklog) futex_wait(signal_, told, kPause);
  }
  return true;
}

}  // namespace cswap
