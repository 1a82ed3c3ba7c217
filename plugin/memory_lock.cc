#include "plugin/memory_lock.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "core/types.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace cswap {
namespace {

// Written before the fork by its only thread, read after it.
bool locked_before_fork = false;
uint64_t fork_reserve_bytes = 0;

constexpr int kLockFlags = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT;

bool is_locked() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmLck:")) return std::strtoull(line.c_str() + 6, nullptr, 10) > 0;
  }
  return false;
}

std::string limit_message(int error) {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string value =
      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur >> 10) + " KiB";
  return "mlock: the server's memory cannot be locked: " + std::string(std::strerror(error)) +
         "; the limit on locked memory RLIMIT_MEMLOCK is " + value +
         " and counts reserved address space too: make it unlimited (ulimit -l unlimited, or "
         "LimitMEMLOCK=infinity in the service), run with CAP_IPC_LOCK, or give mlock=off";
}

// Address space of locked memory counts against the limit whether it is touched or not.
std::string try_reserve(uint64_t bytes) {
  void* const at =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return limit_message(errno);
  munmap(at, bytes);
  return "";
}

void note_lock_at_fork() {
  if (!is_locked()) return;
  locked_before_fork = true;
  const std::string error = try_reserve(fork_reserve_bytes);
  if (error.empty()) return;
  std::fprintf(stderr, "nbdkit: cswap: %s\n", error.c_str());
  std::fflush(stderr);
  // Inside fork(), where exit() could wait for a lock that fork() holds.
  _exit(EXIT_FAILURE);
}

struct Range {
  std::byte* begin;
  size_t bytes;
  std::string mode;  // "rw-p"
  std::string name;  // a path, "[heap]", or empty
};

std::vector<Range> own_mappings() {
  std::vector<Range> ranges;
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    std::istringstream fields(line);
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::string mode, offset, device, inode, name;
    fields >> std::hex >> begin >> dash >> end >> mode >> offset >> device >> inode >> name;
    if (!fields && !fields.eof()) continue;
    ranges.push_back({reinterpret_cast<std::byte*>(begin), end - begin, mode, name});
  }
  return ranges;
}

// Code that is locked on fault only would still be read from disk at a bad moment.
void populate_code() {
  for (const Range& range : own_mappings()) {
    if (range.mode[0] != 'r' || !range.name.starts_with('/')) continue;
    madvise(range.begin, range.bytes, MADV_POPULATE_READ);
  }
}

// nbdkit's own lock made every mapping resident at once, also 192 MiB of its static data that it
// never uses. Pages that are all zero read the same after they were given back. Only while this is
// the only thread: a page that is written between the look and the release would lose that.
void release_zero_pages() {
  static constexpr std::array<std::byte, kPageBytes> kZeroes{};
  for (const Range& range : own_mappings()) {
    if (range.mode != "rw-p" || !(range.name.empty() || range.name == "[heap]")) continue;
    std::vector<unsigned char> resident(range.bytes / kPageBytes);
    if (mincore(range.begin, range.bytes, resident.data()) != 0) continue;
    size_t first = 0;
    for (size_t page = 0; page <= resident.size(); ++page) {
      const std::byte* const at = range.begin + page * kPageBytes;
      const bool unused = page < resident.size() && (resident[page] & 1) != 0 &&
                          std::memcmp(at, kZeroes.data(), kPageBytes) == 0;
      if (unused) continue;
      if (page > first) {
        madvise(range.begin + first * kPageBytes, (page - first) * kPageBytes,
                MADV_DONTNEED_LOCKED);
      }
      first = page + 1;
    }
  }
}

}  // namespace

std::string MemoryLock::prepare(LockMode mode, uint64_t reserve_bytes) {
  if (mode == LockMode::kOff) return "";
  if (mode == LockMode::kAuto) {
    fork_reserve_bytes = reserve_bytes;
    const int error = pthread_atfork(note_lock_at_fork, nullptr, nullptr);
    return error == 0 ? "" : "mlock: pthread_atfork: " + std::string(std::strerror(error));
  }
  if (mlockall(kLockFlags) != 0) return limit_message(errno);
  std::string message = try_reserve(reserve_bytes);
  // nbdkit's own --swap, if given, locks again before the fork.
  munlockall();
  return message;
}

std::string MemoryLock::lock(LockMode mode) {
  if (mode == LockMode::kOff) {
    munlockall();  // of nbdkit's --swap in the foreground, which would fill every mapping
    return "";
  }
  if (mode == LockMode::kAuto && !locked_before_fork && !is_locked()) return "";
  if (mlockall(kLockFlags) != 0) return limit_message(errno);
  release_zero_pages();
  populate_code();
  return "";
}

bool MemoryLock::set_io_flusher() { return prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) == 0; }

}  // namespace cswap
