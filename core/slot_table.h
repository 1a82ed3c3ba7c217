// One word per guest page of a device, in slot clusters of 512 words (one page of table, 2 MiB of
// device), in a mapping that is touched lazily: memory grows with what is stored, not with the
// device.
//
// A slot cluster is `touched` while any of its words is not empty, or while a request is about to
// fill one. Only touched ones have resident table pages and descriptors, and both are charged to
// the MemoryBudget; operations on others look at the bitmap alone, so that a trim of a terabyte
// of nothing costs nothing. When the last word becomes empty the table page is given back.
//
// Locks: slot cluster (each SlotCluster::lock). A word is written only under it and atomically, so
// that peek() may read without it.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/mapping.h"
#include "core/memory_budget.h"
#include "core/mutex.h"
#include "core/slot_word.h"
#include "core/types.h"

namespace cswap {

// Eight bytes, so that the descriptors of a device, which are never given back, stay small beside a
// limit: 4 KiB for each GiB of device that was ever used. Neighbours share a cache line; threads
// that write far apart do not meet there.
struct SlotCluster {
  Mutex<LockRank::kSlotCluster> lock;
  uint32_t used CSWAP_GUARDED_BY(lock);  // words that are not empty
};
static_assert(sizeof(SlotCluster) == 8);

class SlotTable {
 public:
  using Index = uint64_t;  // of a slot cluster

  // For a device of `pages`. `budget` must outlive the table. Throws std::system_error.
  SlotTable(uint64_t pages, MemoryBudget& budget);

  [[nodiscard]] static Index cluster_of(PageIndex page) { return page.value >> kSlotClusterShift; }
  [[nodiscard]] static PageIndex first_page_of(Index index) { return {index << kSlotClusterShift}; }
  [[nodiscard]] SlotCluster& cluster(Index index) { return clusters_[index]; }

  // Whether the slot cluster may hold anything. False is final for everything that was stored
  // before the call; no lock.
  [[nodiscard]] bool is_touched(Index index) const {
    return (touched_[index / 64].load(std::memory_order_acquire) >> index % 64 & 1) != 0;
  }
  // The first touched slot cluster in [from, end), or end. No lock.
  [[nodiscard]] Index next_touched(Index from, Index end) const;

  // Makes sure that words of the slot cluster may be filled, charging the budget for its table
  // page when it is not yet touched. False when the limit refuses. Takes the slot cluster lock.
  [[nodiscard]] bool reserve(Index index);

  // Lets the word of a page, and its slot cluster's lock, come while something else is done.
  void prefetch(PageIndex page) const {
    __builtin_prefetch(&words_[page.value]);
    __builtin_prefetch(&clusters_[cluster_of(page)], 1);
  }

  // The word as it is at some moment of the call; only a hint to a caller without the lock.
  [[nodiscard]] SlotWord peek(PageIndex page) const {
    if (!is_touched(cluster_of(page))) return {};
    return SlotWord(words_[page.value].load(std::memory_order_relaxed));
  }

  [[nodiscard]] SlotWord get(const SlotCluster& cluster, PageIndex page) const
      CSWAP_REQUIRES(cluster.lock) {
    (void)cluster;
    return SlotWord(words_[page.value].load(std::memory_order_relaxed));
  }
  // Sets the word of `page` and returns the one before. The object that the old word names is now
  // the caller's to free, after it let go of the lock.
  [[nodiscard]] SlotWord exchange(SlotCluster& cluster, PageIndex page, SlotWord word)
      CSWAP_REQUIRES(cluster.lock);

  // To be called before letting go of the lock when words may have become empty, or were reserved
  // and not filled: gives an empty slot cluster's table page back.
  void settle(SlotCluster& cluster, Index index) CSWAP_REQUIRES(cluster.lock);

  // Instead of settle(), when giving the table page back can wait for settle_emptied(): it makes
  // every core that runs a thread of this process flush its TLB.
  void settle_later(SlotCluster& cluster, Index index) CSWAP_REQUIRES(cluster.lock);
  // Settles those that are still empty. Takes slot cluster locks, one at a time. True when there
  // were any to look at.
  bool settle_emptied();

  // Resident bytes of table and descriptors, as charged.
  [[nodiscard]] uint64_t resident_bytes() const {
    return resident_.load(std::memory_order_relaxed);
  }

  // Aborts when an invariant above is broken. No other thread may be using the table.
  void check_invariants();

 private:
  void touch(Index index);
  void charge_descriptors(Index index);

  const uint64_t pages_;
  const uint64_t cluster_count_;
  MemoryBudget& budget_;
  const Mapping words_mapping_;
  const Mapping clusters_mapping_;
  const Mapping touched_mapping_;
  std::atomic<uint64_t>* const words_;
  SlotCluster* const clusters_;
  // A bit per slot cluster, changed only under its lock. Acquire and release order it with the
  // words: who sees the bit sees a table page that was charged.
  std::atomic<uint64_t>* const touched_;
  // A bit per page of descriptors that was ever touched: descriptors are never given back.
  std::atomic<uint64_t>* const charged_;
  // A bit per slot cluster that was left to settle_emptied(); it may have been filled again.
  std::atomic<uint64_t>* const emptied_;
  std::atomic<uint64_t> emptied_count_{0};  // of these bits
  std::atomic<uint64_t> resident_{0};
};

}  // namespace cswap
