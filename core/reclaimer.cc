#include "core/reclaimer.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <utility>

#include "core/futex.h"

namespace cswap {
namespace {

using namespace std::chrono_literals;

// How long a few objects wait for more. The thread takes the CPU from a request now and then, and
// how often matters more to requests than for how long: a millisecond frees 20,000 objects.
constexpr auto kGather = 20ms;
constexpr auto kTrimInterval = 100ms;
// After so long without anything to free, nobody needs the pages that are kept for new objects.
constexpr auto kIdle = 1s;
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

Reclaimer::Reclaimer(FreeQueues& queues, std::function<void()> give_back,
                     std::function<void()> on_start)
    : queues_(queues),
      give_back_(std::move(give_back)),
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
  raise(kFinish);
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
    if (told == kNothing) {
      sleep();
      told = signal_.load(std::memory_order_acquire);
    }
    if (told == kSome) {
      futex_wait(signal_, kSome, kGather);
      told = signal_.load(std::memory_order_acquire);
    }
    if (told == kStop) return;
    const bool any = free_waiting();
    // Near the limit requests freed what they told of.
    freed_ = freed_ || told != kNothing;
    give_back_trimmed(told == kFinish);
    // After some work there is soon more: to be told of it again would cost a request a system
    // call.
    lower_signal(told, any && told != kFinish ? kSome : kNothing);
  }
}

void Reclaimer::sleep() {
  if (trimmed_.load()) {
    const std::chrono::nanoseconds left = next_trim_ - std::chrono::steady_clock::now();
    if (left > 0ns) futex_wait(signal_, kNothing, left);
    return;
  }
  if (freed_) {
    futex_wait(signal_, kNothing, kIdle);
    if (signal_.load() == kNothing) give_back();
    return;
  }
  asleep_.store(true);
  futex_wait(signal_, kNothing, 0ns);
  asleep_.store(false);
}

// Has memory given back if a trim left some, all that was trimmed is freed, and it is time.
void Reclaimer::give_back_trimmed(bool hurry) {
  if (!hurry && std::chrono::steady_clock::now() < next_trim_) return;
  if (!trimmed_.exchange(false)) {
    if (hurry && freed_) give_back();
  } else if (queues_.waiting_objects() > 0) {
    trimmed_.store(true);
  } else {
    give_back();
  }
}

void Reclaimer::give_back() {
  give_back_();
  freed_ = false;
  next_trim_ = std::chrono::steady_clock::now() + kTrimInterval;
}

// Takes the word back, if it is what was obeyed, then looks again: who puts something after the
// look finds it lowered.
void Reclaimer::lower_signal(uint32_t told, Signal to) {
  uint32_t expected = told;
  if (told <= to || !signal_.compare_exchange_strong(expected, to) || to == kSome) return;
  if (queues_.waiting_objects_exactly() > 0 || (told == kFinish && trimmed_.load())) {
    raise(told == kFinish ? kFinish : kSome);
  }
}

// True when there was anything.
bool Reclaimer::free_waiting() {
  bool any = false;
  while (signal_.load(std::memory_order_relaxed) != kStop) {
    if (queues_.free_batch_in_background() == 0) break;
    any = true;
  }
  return any;
}

}  // namespace cswap
