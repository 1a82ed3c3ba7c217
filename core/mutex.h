// The only lock of core: four bytes, valid when all zero (so that locks may live in a mapping that
// is touched lazily), annotated for clang's -Wthread-safety, with a rank that debug builds check.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/check.h"
#include "core/lock_stats.h"

#if defined(__clang__)
#define CSWAP_TSA(x) __attribute__((x))
#else
#define CSWAP_TSA(x)
#endif
#define CSWAP_CAPABILITY(x) CSWAP_TSA(capability(x))
#define CSWAP_SCOPED_CAPABILITY CSWAP_TSA(scoped_lockable)
#define CSWAP_GUARDED_BY(x) CSWAP_TSA(guarded_by(x))
#define CSWAP_REQUIRES(...) CSWAP_TSA(requires_capability(__VA_ARGS__))
#define CSWAP_EXCLUDES(...) CSWAP_TSA(locks_excluded(__VA_ARGS__))
#define CSWAP_ACQUIRE(...) CSWAP_TSA(acquire_capability(__VA_ARGS__))
#define CSWAP_TRY_ACQUIRE(...) CSWAP_TSA(try_acquire_capability(__VA_ARGS__))
#define CSWAP_RELEASE(...) CSWAP_TSA(release_capability(__VA_ARGS__))
#define CSWAP_NO_TSA CSWAP_TSA(no_thread_safety_analysis)

namespace cswap {

// A thread may take a lock only while all that it holds rank lower, but for slot clusters, of which
// it may hold several, taken in ascending address.
//
// Debug builds abort on a breach of the order; release builds compile this to nothing.
class LockOrder {
 public:
#ifdef NDEBUG
  static void acquired(LockRank, const void*) {}
  static void released(LockRank, const void*) {}
#else
  static void acquired(LockRank rank, const void* lock);
  static void released(LockRank rank, const void* lock);
#endif
};

template <LockRank rank>
class CSWAP_CAPABILITY("mutex") Mutex {
 public:
  // `caller` is shown beside the waits in the lock statistics.
  void lock(const char* caller = __builtin_FUNCTION()) CSWAP_ACQUIRE() {
    LockOrder::acquired(rank, this);  // before it may wait for ever, as for a lock it holds
    uint32_t expected = kFree;
    if (!word_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire)) {
      lock_slow(caller);
    }
    LockStats::count(rank);
  }

  [[nodiscard]] bool try_lock() CSWAP_TRY_ACQUIRE(true) {
    uint32_t expected = kFree;
    if (!word_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire)) return false;
    LockOrder::acquired(rank, this);
    LockStats::count(rank);
    return true;
  }

  void unlock() CSWAP_RELEASE() {
    LockOrder::released(rank, this);
    if (word_.exchange(kFree, std::memory_order_release) == kContended) word_.notify_one();
  }

 private:
  // As U. Drepper's "Futexes Are Tricky", third mutex: kContended says that someone may sleep.
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kHeld = 1;
  static constexpr uint32_t kContended = 2;
  // Holders work for well under a microsecond, so a short spin nearly always suffices.
  static constexpr int kSpins = 100;

  void lock_slow(const char* caller) {
    const auto start = std::chrono::steady_clock::now();
    wait_for_lock();
    const auto waited = std::chrono::steady_clock::now() - start;
    LockStats::count_wait(rank, caller,
                          static_cast<uint64_t>(std::chrono::nanoseconds(waited).count()));
  }

  void wait_for_lock() {
    for (int i = 0; i < kSpins; ++i) {
      uint32_t expected = kFree;
      if (word_.load(std::memory_order_relaxed) == kFree &&
          word_.compare_exchange_weak(expected, kHeld, std::memory_order_acquire)) {
        return;
      }
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    while (word_.exchange(kContended, std::memory_order_acquire) != kFree) {
      word_.wait(kContended, std::memory_order_relaxed);
    }
  }

  std::atomic<uint32_t> word_{kFree};
};

template <typename Lock>
class CSWAP_SCOPED_CAPABILITY Guard {
 public:
  explicit Guard(Lock& lock, const char* caller = __builtin_FUNCTION()) CSWAP_ACQUIRE(lock)
      : lock_(lock) {
    lock_.lock(caller);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() CSWAP_RELEASE() { lock_.unlock(); }

 private:
  Lock& lock_;
};

// Takes the lock only when told to, unseen by the analysis: around code whose guards of the same
// lock, see OptionalGuard, stand for one that is held already.
template <typename Lock>
class UncheckedGuard {
 public:
  UncheckedGuard(Lock& lock, bool take, const char* caller = __builtin_FUNCTION()) CSWAP_NO_TSA
      : lock_(take ? &lock : nullptr) {
    if (take) lock.lock(caller);
  }
  UncheckedGuard(const UncheckedGuard&) = delete;
  UncheckedGuard& operator=(const UncheckedGuard&) = delete;
  ~UncheckedGuard() CSWAP_NO_TSA {
    if (lock_ != nullptr) lock_->unlock();
  }

 private:
  Lock* const lock_;
};

// Takes the lock only when told to: where one lock guards all, its holder takes no others. To the
// analysis it is held in either case.
template <typename Lock>
class CSWAP_SCOPED_CAPABILITY OptionalGuard : UncheckedGuard<Lock> {
 public:
  OptionalGuard(Lock& lock, bool take, const char* caller = __builtin_FUNCTION())
      CSWAP_ACQUIRE(lock)
      : UncheckedGuard<Lock>(lock, take, caller) {}
  ~OptionalGuard() CSWAP_RELEASE() {}
};

}  // namespace cswap
