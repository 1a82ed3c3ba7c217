// How often each class of lock was taken, and how long its takers waited: the columns of
// `perf lock contention`, for the locks of core/mutex.h.
//
// Of the whole process, not of a pool: a lock is four bytes and knows no pool. Counting an
// uncontended lock is one store to memory of the thread's own; a wait is timed only once there is
// one. Thread-safe, without locks; reading never stops writers.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cswap {

// A class of lock; also its place in the lock order, lowest first (core/pool.h says what each is
// for).
enum class LockRank : uint32_t {
  kSlotCluster = 1,
  kTenant = 2,  // not taken by anything until tenants have lists of their own
  kObjectCluster = 3,
  kSlotCache = 4,
  kStore = 5,
  kFreeQueue = 6,
};
inline constexpr size_t kLockRanks = 7;

// Waits of one class, or of one function that took locks of it.
struct LockWaits {
  std::string caller;  // the function; empty in a sum over the class
  uint64_t contended = 0;
  uint64_t total_ns = 0;
  uint64_t max_ns = 0;
  uint64_t min_ns = 0;  // 0 when there was no wait

  [[nodiscard]] uint64_t average_ns() const { return contended == 0 ? 0 : total_ns / contended; }
};

struct LockSnapshot {
  std::string name;  // "slot_cluster"
  uint64_t acquired = 0;
  LockWaits waits;
  std::vector<LockWaits> callers;  // the longest total first
};

class LockStats {
 public:
  // A lock of this class was taken, with or without a wait.
#ifdef CSWAP_NO_LOCK_STATS  // to measure what counting costs
  static void count(LockRank) {}
  static void count_wait(LockRank, const char*, uint64_t) {}
#else
  static void count(LockRank rank) {
    Cells* cells = own_;
    if (cells == nullptr) [[unlikely]]
      cells = claim_cells();
    std::atomic<uint64_t>& acquired = cells->acquired[static_cast<size_t>(rank)];
    acquired.store(acquired.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // Taking it meant waiting for `ns`. `caller` must live as long as the process.
  static void count_wait(LockRank rank, const char* caller, uint64_t ns);
#endif

  [[nodiscard]] static std::vector<LockSnapshot> snapshot();
  // The waits as lines of columns: contended, total, max and average wait, class, caller.
  [[nodiscard]] static std::string table(const std::vector<LockSnapshot>& locks);

 private:
  // One thread's. On a cache line of its own.
  struct alignas(64) Cells {
    std::array<std::atomic<uint64_t>, kLockRanks> acquired;
  };
  friend struct LockCellsOwner;

  static Cells* claim_cells();

  // Initial-exec, so that reading it is one instruction in a shared object too.
  static thread_local Cells* own_ __attribute__((tls_model("initial-exec")));
};

}  // namespace cswap
