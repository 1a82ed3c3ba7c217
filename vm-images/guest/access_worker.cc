// The measuring mode: every word of the memory is written with its own index, or read.

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "worker.h"

namespace cswap::guest {
namespace {

using Word = uint64_t;

// Allocating counts as an eighth of the size, as it does in the original, so that figures compare.
constexpr uint64_t kAllocationShare = 8;
constexpr uint64_t kRuntimeCheckEvery = 1 << 16;

class AccessWorker {
 public:
  AccessWorker(const UsememOptions& options, uint32_t worker)
      : options_(options), random_(mix(options.seed + worker)) {}

  void start_clock() { started_us_ = now_us(); }
  uint64_t elapsed_us() const { return now_us() - started_us_; }
  bool out_of_time() const {
    return options_.runtime_s != 0 && elapsed_us() > options_.runtime_s * uint64_t{1'000'000};
  }

  // Goes over a piece `repeat` times; returns the bytes accessed. `limit` 0 means all words.
  uint64_t go_over(const Piece& piece, bool read, uint64_t limit = 0);

 private:
  uint64_t once(const Piece& piece, bool read, bool check, uint64_t limit);
  void dwell(volatile Word* word, bool read) const;
  static void check_word(volatile Word* words, uint64_t index);

  const UsememOptions& options_;
  uint64_t random_;
  uint64_t started_us_ = 0;
};

void touch(volatile Word* words, uint64_t index, bool read) {
  if (read) {
    (void)words[index];
  } else {
    words[index] = index;
  }
}

void AccessWorker::dwell(volatile Word* word, bool read) const {
  timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  do {
    if (read) (void)*word;
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (static_cast<uint64_t>((now.tv_sec - start.tv_sec) * 1'000'000'000 +
                                 (now.tv_nsec - start.tv_nsec)) < options_.delay_ns);
}

void AccessWorker::check_word(volatile Word* words, uint64_t index) {
  const Word found = words[index];
  if (found == index) return;
  std::fprintf(stderr, "usemem: MISMATCH at offset 0x%llx: want word 0x%llx, found 0x%llx\n",
               static_cast<unsigned long long>(index * sizeof(Word)),
               static_cast<unsigned long long>(index), static_cast<unsigned long long>(found));
  std::exit(1);
}

uint64_t AccessWorker::once(const Piece& piece, bool read, bool check, uint64_t limit) {
  auto* words = reinterpret_cast<volatile Word*>(piece.start);
  const uint64_t count = piece.bytes / sizeof(Word);
  const uint64_t step = options_.step_bytes / sizeof(Word);
  uint64_t accesses = 0;
  uint64_t last_page = UINT64_MAX;
  for (uint64_t at = 0; at < count; at += step) {
    uint64_t index = at;
    if (options_.random) {
      random_ = mix(random_);
      index = random_ % count;
    } else if (check) {
      check_word(words, index);
    }
    touch(words, index, read);
    ++accesses;
    const uint64_t page = index * sizeof(Word) / kPageSize;
    if (options_.delay_ns != 0 && page != last_page) dwell(words + index, read);
    last_page = page;
    if (accesses == limit) break;
    if (accesses % kRuntimeCheckEvery == 0 && out_of_time()) break;
  }
  return accesses * sizeof(Word);
}

uint64_t AccessWorker::go_over(const Piece& piece, bool read, uint64_t limit) {
  uint64_t bytes = 0;
  for (unsigned round = 0; round < options_.repeat && !(round > 0 && out_of_time()); ++round) {
    if (round > 0 && !options_.quiet) {
      std::putchar('.');
      std::fflush(stdout);
    }
    bytes += once(piece, read, round > 0 && !read, limit);
  }
  return bytes;
}

void punch_holes(const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    for (size_t at = 0; at + 2 * kPageSize <= piece.bytes; at += 2 * kPageSize) {
      madvise(piece.start + at, kPageSize, MADV_DONTNEED);
    }
  }
  std::puts("every second page freed");
  std::fflush(stdout);
}

void lock_pieces(const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    if (mlock(piece.start, piece.bytes) != 0) {
      std::perror("usemem: mlock");
      std::exit(1);
    }
  }
}

void wait_for_sigusr1() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  std::printf("process %d waits for SIGUSR1\n", getpid());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);  // main() has blocked it, so that one sent early is not lost
}

void sleep_seconds(unsigned seconds) {
  while (seconds != 0) seconds = sleep(seconds);
}

std::vector<Piece> allocate_and_access(const UsememOptions& options, Phases& phases,
                                       const Piece* prealloc, AccessWorker& worker) {
  std::vector<Piece> pieces;
  const uint64_t unit = options.unit_bytes != 0 ? options.unit_bytes : options.bytes;
  uint64_t counted = prealloc != nullptr ? options.bytes / kAllocationShare : 0;
  if (!options.sync_start) phases.arrive_and_wait(Phase::kStart);
  worker.start_clock();
  uint64_t done = 0;
  do {
    const uint64_t bytes = std::min(unit, options.bytes - done);
    Piece piece;
    if (prealloc != nullptr) {
      piece = {prealloc->start + done, bytes};
    } else {
      piece = allocate_piece(options, bytes);
      counted += bytes / kAllocationShare;
      if (options.touch_after_alloc) std::memset(piece.start, 0xa5, bytes);
    }
    pieces.push_back(piece);
    if (options.sync_start) phases.arrive_and_wait(Phase::kStart);
    counted += worker.go_over(piece, options.readonly);
    done += bytes;
  } while (done < options.bytes && !worker.out_of_time());
  if (!options.wait_for_signal && counted > 0) print_rate("", counted, worker.elapsed_us());
  return pieces;
}

}  // namespace

void run_access_worker(const UsememOptions& options, Phases& phases, const Piece* prealloc,
                       uint32_t worker_number) {
  AccessWorker worker(options, worker_number);
  const std::vector<Piece> pieces = allocate_and_access(options, phases, prealloc, worker);
  if (options.read_again) {
    worker.start_clock();
    uint64_t bytes = 0;
    for (const Piece& piece : pieces) bytes += worker.go_over(piece, true);
    print_rate("read again ", bytes, worker.elapsed_us());
  }
  phases.arrive_and_wait(Phase::kFilled);
  if (options.lock_memory) lock_pieces(pieces);
  if (options.punch_holes) punch_holes(pieces);
  sleep_seconds(options.sleep_s);
  if (options.wait_for_signal) {
    wait_for_sigusr1();
    worker.start_clock();
    uint64_t bytes = 0;
    for (const Piece& piece : pieces) {
      bytes += worker.go_over(piece, true, options.signal_read_count);
    }
    print_rate("", bytes, worker.elapsed_us());
  }
  if (options.sync_free) phases.arrive_and_wait(Phase::kFree);
  if (prealloc != nullptr) return;
  const uint64_t start = now_us();
  free_pieces(options, pieces);
  print_free(now_us() - start);
}

}  // namespace cswap::guest
