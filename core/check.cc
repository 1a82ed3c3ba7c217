#include "core/check.h"

#include <array>
#include <cstdio>
#include <cstdlib>

#include "core/mutex.h"

namespace cswap {

void check_failed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "cswap: %s:%d: broken invariant: %s\n", file, line, what);
  std::abort();
}

#ifndef NDEBUG
namespace {

// The locks that this thread holds, in order of acquisition.
struct HeldLocks {
  struct Held {
    LockRank rank;
    const void* lock;
  };
  std::array<Held, 8> locks;
  size_t count = 0;
};
thread_local HeldLocks held_locks;

}  // namespace

void LockOrder::acquired(LockRank rank, const void* lock) {
  HeldLocks& held = held_locks;
  if (held.count > 0) {
    const HeldLocks::Held& last = held.locks[held.count - 1];
    const bool ascending_slot_clusters =
        rank == LockRank::kSlotCluster && last.rank == rank && last.lock < lock;
    CSWAP_CHECK(last.rank < rank || ascending_slot_clusters);
  }
  CSWAP_CHECK(held.count < held.locks.size());
  held.locks[held.count++] = {rank, lock};
}

void LockOrder::released(LockRank rank, const void* lock) {
  HeldLocks& held = held_locks;
  size_t at = held.count;
  while (at > 0 && held.locks[at - 1].lock != lock) --at;
  CSWAP_CHECK(at > 0 && held.locks[at - 1].rank == rank);
  for (; at < held.count; ++at) held.locks[at - 1] = held.locks[at];
  --held.count;
}
#endif

}  // namespace cswap
