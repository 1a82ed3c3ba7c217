#include "worker.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace cswap::guest {

uint64_t now_us() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

void print_rate(const char* what, uint64_t bytes, uint64_t usecs) {
  if (usecs == 0) usecs = 1;
  const auto kib_per_s =
      static_cast<uint64_t>(static_cast<double>(bytes) * 1e6 / 1024 / static_cast<double>(usecs));
  std::printf("%s%llu bytes / %llu usecs = %llu KB/s\n", what,
              static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(usecs),
              static_cast<unsigned long long>(kib_per_s));
  std::fflush(stdout);
}

void print_free(uint64_t usecs) {
  std::printf("%llu usecs to free memory\n", static_cast<unsigned long long>(usecs));
  std::fflush(stdout);
}

Piece allocate_piece(const UsememOptions& options, size_t bytes) {
  void* memory = nullptr;
  if (options.use_malloc) {
    memory = std::malloc(bytes);
  } else {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (options.prefault) flags |= MAP_POPULATE;
    if (options.hugetlb) flags |= MAP_HUGETLB;
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) memory = nullptr;
  }
  if (memory == nullptr && bytes > 0) {
    std::fprintf(stderr, "usemem: no %zu bytes: %s\n", bytes, std::strerror(errno));
    std::exit(1);
  }
  return {static_cast<std::byte*>(memory), bytes};
}

void free_pieces(const UsememOptions& options, const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    if (options.use_malloc) {
      std::free(piece.start);
    } else {
      munmap(piece.start, piece.bytes);
    }
  }
}

}  // namespace cswap::guest
