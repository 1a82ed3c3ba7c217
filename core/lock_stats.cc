#include "core/lock_stats.h"

#include <pthread.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <functional>

namespace cswap {
namespace {

constexpr std::array<const char*, kLockRanks> kNames = {
    nullptr, "slot_cluster", "tenant", "object_cluster", "slot_cache", "store", "free_queue"};

// Threads whose locks are counted at one moment. What threads beyond it take is not counted.
constexpr uint32_t kMaxThreads = 4096;
// Functions that wait for locks: a few dozen at most.
constexpr size_t kMaxCallers = 64;

// `key` is claimed once and for all: the class in the top byte, the address of the name below it.
struct Caller {
  std::atomic<uint64_t> key{0};
  std::atomic<uint64_t> contended{0};
  std::atomic<uint64_t> total_ns{0};
  std::atomic<uint64_t> max_ns{0};
  std::atomic<uint64_t> min_ns{~uint64_t{0}};
};
std::array<Caller, kMaxCallers> callers;

constexpr uint32_t kRankShift = 56;

uint64_t key_of(LockRank rank, const char* name) {
  return uint64_t{static_cast<uint32_t>(rank)} << kRankShift | reinterpret_cast<uintptr_t>(name);
}

const char* name_of(uint64_t key) {
  return reinterpret_cast<const char*>(key & ((uint64_t{1} << kRankShift) - 1));
}

void raise_to(std::atomic<uint64_t>& cell, uint64_t value) {
  uint64_t seen = cell.load(std::memory_order_relaxed);
  while (seen < value && !cell.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

void lower_to(std::atomic<uint64_t>& cell, uint64_t value) {
  uint64_t seen = cell.load(std::memory_order_relaxed);
  while (seen > value && !cell.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

// Null when all places are taken.
Caller* find_caller(uint64_t key) {
  for (Caller& caller : callers) {
    uint64_t seen = caller.key.load(std::memory_order_relaxed);
    if (seen == 0 && caller.key.compare_exchange_strong(seen, key, std::memory_order_relaxed)) {
      return &caller;
    }
    if (seen == key) return &caller;
  }
  return nullptr;
}

void add(LockWaits& sum, const LockWaits& more) {
  if (more.contended == 0) return;
  sum.min_ns = sum.contended == 0 ? more.min_ns : std::min(sum.min_ns, more.min_ns);
  sum.contended += more.contended;
  sum.total_ns += more.total_ns;
  sum.max_ns = std::max(sum.max_ns, more.max_ns);
}

// One function has several names when a compiler keeps its string twice.
void add_caller(LockSnapshot& lock, const LockWaits& waits) {
  add(lock.waits, waits);
  const auto known = std::ranges::find(lock.callers, waits.caller, &LockWaits::caller);
  if (known == lock.callers.end()) {
    lock.callers.push_back(waits);
  } else {
    add(*known, waits);
  }
}

std::string duration(uint64_t ns) {
  std::array<char, 32> text;
  const auto value = static_cast<double>(ns);
  const char* unit = "ns";
  double shown = value;
  for (const char* const larger : {"us", "ms", "s"}) {
    if (shown < 1000) break;
    shown /= 1000;
    unit = larger;
  }
  std::snprintf(text.data(), text.size(), "%.2f %s", shown, unit);
  return text.data();
}

}  // namespace

thread_local LockStats::Cells* LockStats::own_ = nullptr;

// Lends cells to threads until they end; what they counted stays. A thread's end is noticed by a
// pthread key, since a thread_local with a destructor allocates when a thread first uses it, and a
// request must not.
struct LockCellsOwner {
  static inline std::array<LockStats::Cells, kMaxThreads + 1> cells;  // the last is for the rest
  static inline std::array<std::atomic<bool>, kMaxThreads> taken;

  LockCellsOwner() { usable = pthread_key_create(&key, give_back) == 0; }
  ~LockCellsOwner() {
    if (usable) pthread_key_delete(key);
  }

  [[nodiscard]] LockStats::Cells* lend() const {
    for (uint32_t i = 0; usable && i < kMaxThreads; ++i) {
      if (taken[i].load(std::memory_order_relaxed)) continue;
      // Acquire, as give_back() releases: the next owner goes on from what the last one counted.
      if (taken[i].exchange(true, std::memory_order_acquire)) continue;
      if (pthread_setspecific(key, &cells[i]) == 0) return &cells[i];
      taken[i].store(false, std::memory_order_relaxed);
      break;
    }
    return &cells[kMaxThreads];
  }

  static void give_back(void* lent) {
    LockStats::own_ = &cells[kMaxThreads];
    taken[static_cast<size_t>(static_cast<LockStats::Cells*>(lent) - cells.data())].store(
        false, std::memory_order_release);
  }

  pthread_key_t key{};
  bool usable = false;
};

LockStats::Cells* LockStats::claim_cells() {
  static const LockCellsOwner owner;
  own_ = owner.lend();
  return own_;
}

#ifndef CSWAP_NO_LOCK_STATS
void LockStats::count_wait(LockRank rank, const char* name, uint64_t ns) {
  Caller* const caller = find_caller(key_of(rank, name));
  if (caller == nullptr) return;
  caller->contended.fetch_add(1, std::memory_order_relaxed);
  caller->total_ns.fetch_add(ns, std::memory_order_relaxed);
  raise_to(caller->max_ns, ns);
  lower_to(caller->min_ns, ns);
}
#endif

std::vector<LockSnapshot> LockStats::snapshot() {
  std::vector<LockSnapshot> locks;
  for (size_t rank = 0; rank < kLockRanks; ++rank) {
    if (kNames[rank] == nullptr) continue;
    LockSnapshot lock;
    lock.name = kNames[rank];
    for (uint32_t i = 0; i < kMaxThreads; ++i) {
      lock.acquired += LockCellsOwner::cells[i].acquired[rank].load(std::memory_order_relaxed);
    }
    for (const Caller& caller : callers) {
      const uint64_t key = caller.key.load(std::memory_order_relaxed);
      const uint64_t contended = caller.contended.load(std::memory_order_relaxed);
      if (key >> kRankShift != rank || contended == 0) continue;
      add_caller(lock, {name_of(key), contended, caller.total_ns.load(std::memory_order_relaxed),
                        caller.max_ns.load(std::memory_order_relaxed),
                        caller.min_ns.load(std::memory_order_relaxed)});
    }
    std::ranges::sort(lock.callers, std::greater(), &LockWaits::total_ns);
    locks.push_back(std::move(lock));
  }
  return locks;
}

std::string LockStats::table(const std::vector<LockSnapshot>& locks) {
  std::array<char, 256> line;
  const auto row = [&line](const LockWaits& waits, const char* type) {
    std::snprintf(line.data(), line.size(), "%10" PRIu64 " %12s %12s %12s   %-14s %s\n",
                  waits.contended, duration(waits.total_ns).c_str(), duration(waits.max_ns).c_str(),
                  duration(waits.average_ns()).c_str(), type, waits.caller.c_str());
    return std::string(line.data());
  };
  std::snprintf(line.data(), line.size(), "%10s %12s %12s %12s   %-14s %s\n", "contended",
                "total wait", "max wait", "avg wait", "type", "caller");
  std::string text(line.data());
  for (const LockSnapshot& lock : locks) {
    for (const LockWaits& waits : lock.callers) text += row(waits, lock.name.c_str());
  }
  return text;
}

}  // namespace cswap
