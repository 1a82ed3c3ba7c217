// What the pool's memory may grow to: resident bytes of objects and metadata against `mem_limit`.
//
// Thread safety: any thread; relaxed atomics, no lock. A charge is admitted and counted in one
// step, so the limit holds.
//
// A store of a new page may fill the limit up to a reserve. A store that replaces an object may
// use, for as long as old and new exist both, the bytes that it replaces (its credit) too; and when
// the new object is no larger, also the reserve and whatever pages it needs (its slack): an
// overwrite must not fail only because both exist for a moment. It is not refused at all when its
// size class has no place left: overwrites of the same sizes let a class keep a place or two free
// at most, which is up to two pages for each, and the reserve of a limit of 64 MiB or more covers
// that. Far over the limit nothing that adds content is accepted.
// So memory in use exceeds the limit by at most the credit and slack of requests in flight, and
// with a limit below 64 MiB by the free places of the size classes in use.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace cswap {

class MemoryBudget {
 public:
  // limit_bytes 0 means none; accept_percent is 1 to 100 (zswap's accept_threshold_percent).
  MemoryBudget(uint64_t limit_bytes, uint32_t accept_percent)
      : limit_(limit_bytes),
        reserve_(std::min(limit_bytes / 32, kMaxReserveBytes)),
        accept_below_(limit_bytes / 100 * accept_percent +
                      limit_bytes % 100 * accept_percent / 100) {}

  // Who asks for memory: a page that had no object, or one whose object becomes larger, or not.
  // kCertain is a replacement for which there was no other way.
  enum class For { kNewPage, kGrowth, kReplacement, kCertain };

  // Takes `bytes`, a multiple of a page, if they fit; false takes nothing.
  [[nodiscard]] bool try_charge(uint64_t bytes, For purpose);
  // Takes `bytes` that cannot be refused any more.
  void charge(uint64_t bytes);
  void release(uint64_t bytes) {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    note_free();
  }

  // What requests in flight are about to give back.
  struct Credit {
    uint64_t bytes = 0;        // of the objects that they replace
    uint64_t slack_bytes = 0;  // whole pages of objects that replace one at least as large
  };
  void add_credit(Credit credit) {
    credit_.fetch_add(credit.bytes, std::memory_order_relaxed);
    slack_.fetch_add(credit.slack_bytes, std::memory_order_relaxed);
  }
  void drop_credit(Credit credit) {
    credit_.fetch_sub(credit.bytes, std::memory_order_relaxed);
    slack_.fetch_sub(credit.slack_bytes, std::memory_order_relaxed);
  }

  // A request was refused: new pages are refused too until reconsider() finds room.
  void set_limit_reached() { reached_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool limit_reached() const { return reached_.load(std::memory_order_relaxed); }
  // What is in use without the places that freed objects left in pages which are still resident:
  // those are as good as free memory to the next object. Without any object there is nothing to
  // wait for, whatever the metadata take.
  void reconsider(uint64_t object_bytes, uint64_t metadata_bytes) {
    if (object_bytes == 0 || object_bytes + metadata_bytes <= accept_below_) {
      reached_.store(false, std::memory_order_relaxed);
    }
  }

  // Requests whose credit was used have left more than the limit in use.
  [[nodiscard]] bool over_limit() const { return limit_ != 0 && used_bytes() > limit_; }
  // By how much.
  [[nodiscard]] uint64_t excess_bytes() const {
    const uint64_t used = used_bytes();
    return limit_ != 0 && used > limit_ ? used - limit_ : 0;
  }
  // By so much that nothing may add content, not even in memory that is there already.
  [[nodiscard]] bool far_over_limit() const {
    return limit_ != 0 && used_bytes() > limit_ + std::min(limit_ / 16, kMaxExcessBytes);
  }

  // So little is left, or so little has some request found, that freed memory must not wait to be
  // used again.
  [[nodiscard]] bool near_limit() const {
    return seekers_.load(std::memory_order_relaxed) > 0 ||
           (limit_ != 0 && (limit_reached() || used_bytes() > limit_ - limit_ / 16));
  }

  // A request that was given no memory, while it looks for some.
  class Seeker {
   public:
    explicit Seeker(MemoryBudget& budget) : budget_(budget) {
      budget_.seekers_.fetch_add(1, std::memory_order_relaxed);
    }
    Seeker(const Seeker&) = delete;
    Seeker& operator=(const Seeker&) = delete;
    ~Seeker() { budget_.seekers_.fetch_sub(1, std::memory_order_relaxed); }

    // Whether anything was freed since the last call.
    [[nodiscard]] bool something_was_freed() {
      const uint32_t frees = budget_.frees_.load(std::memory_order_relaxed);
      return std::exchange(seen_, frees) != frees;
    }

   private:
    MemoryBudget& budget_;
    uint32_t seen_ = budget_.frees_.load(std::memory_order_relaxed);
  };
  // Objects were freed, or pages; for the requests that look for memory now.
  void note_free() {
    if (seekers_.load(std::memory_order_relaxed) > 0) {
      frees_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  [[nodiscard]] uint64_t limit_bytes() const { return limit_; }
  [[nodiscard]] uint64_t used_bytes() const { return used_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t used_max_bytes() const {
    return used_max_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr uint64_t kMaxReserveBytes = 4ull << 20;
  static constexpr uint64_t kMaxExcessBytes = 256ull << 10;

  [[nodiscard]] uint64_t allowed_bytes(For purpose) const;
  void note_peak(uint64_t used);

  const uint64_t limit_;
  const uint64_t reserve_;
  const uint64_t accept_below_;
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> used_max_{0};
  std::atomic<uint64_t> credit_{0};
  std::atomic<uint64_t> slack_{0};
  std::atomic<bool> reached_{false};
  std::atomic<uint32_t> seekers_{0};
  std::atomic<uint32_t> frees_{0};
};

}  // namespace cswap
