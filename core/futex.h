// Waiting with a time limit for an atomic word to change, which std::atomic cannot.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace cswap {

// Sleeps while `word` is `value`, at most for `limit` (zero: no limit). May return early.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t value,
                       std::chrono::nanoseconds limit) {
  const timespec time{limit.count() / 1'000'000'000, limit.count() % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, limit.count() == 0 ? nullptr : &time,
          nullptr, 0);
}

// Wakes all that sleep for the word.
inline void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace cswap
