// Keeps the server in memory when it serves swap of its own host.
//
// nbdkit's --swap locks memory before it forks, and locks do not pass to a child; it also locks so
// that every lazily touched mapping is filled at once. So the plugin locks for itself after the
// fork, with MCL_ONFAULT: pages are locked as they are touched.
#pragma once

#include <cstdint>
#include <string>

namespace cswap {

enum class LockMode { kAuto, kOn, kOff };

// All functions are for the main thread, in this order. Those that return a message return "" when
// all is well.
class MemoryLock {
 public:
  // get_ready: with kOn, tries whether `reserve_bytes` of address space could be locked, so that a
  // limit that is too small is seen before the server detaches. With kAuto, prepares to notice at
  // the fork that nbdkit had locked; a limit that is too small then ends the start with a message,
  // there being no caller left to return it to.
  [[nodiscard]] static std::string prepare(LockMode mode, uint64_t reserve_bytes);

  // after_fork, before the pool is made: locks when asked or when nbdkit had locked.
  [[nodiscard]] static std::string lock(LockMode mode);

  // Marks this thread, and those that it will start, as one that memory reclaim waits for
  // (PR_SET_IO_FLUSHER), so that its own allocations do not wait for the swap that it serves.
  // False where that is not allowed (it needs CAP_SYS_RESOURCE).
  static bool set_io_flusher();
};

}  // namespace cswap
