#include "core/slot_table.h"

#include <bit>

#include "core/check.h"

namespace cswap {
namespace {

constexpr uint64_t kTablePageBytes = kSlotClusterSlots * sizeof(uint64_t);
static_assert(kTablePageBytes == kPageBytes, "a slot cluster is one page of table");
constexpr uint64_t kClustersPerDescriptorPage = kPageBytes / sizeof(SlotCluster);

constexpr uint64_t div_up(uint64_t n, uint64_t by) { return (n + by - 1) / by; }

}  // namespace

SlotTable::SlotTable(uint64_t pages, MemoryBudget& budget)
    : pages_(pages),
      cluster_count_(div_up(pages, kSlotClusterSlots)),
      budget_(budget),
      words_mapping_(cluster_count_ * kTablePageBytes, "the slot table"),
      clusters_mapping_(cluster_count_ * sizeof(SlotCluster), "the slot clusters"),
      touched_mapping_((2 * div_up(cluster_count_, 64) +
                        div_up(div_up(cluster_count_, kClustersPerDescriptorPage), 64)) *
                           sizeof(uint64_t),
                       "the slot table's bitmaps"),
      words_(words_mapping_.as<std::atomic<uint64_t>>()),
      clusters_(clusters_mapping_.as<SlotCluster>()),
      touched_(touched_mapping_.as<std::atomic<uint64_t>>()),
      charged_(touched_ + 2 * div_up(cluster_count_, 64)),
      emptied_(touched_ + div_up(cluster_count_, 64)) {}

SlotTable::Index SlotTable::next_touched(Index from, Index end) const {
  while (from < end) {
    const uint64_t word = touched_[from / 64].load(std::memory_order_acquire) >> from % 64;
    if (word != 0) {
      const Index found = from + static_cast<Index>(std::countr_zero(word));
      return found < end ? found : end;
    }
    from = (from / 64 + 1) * 64;
  }
  return end;
}

void SlotTable::charge_descriptors(Index index) {
  const Index page = index / kClustersPerDescriptorPage;
  const uint64_t bit = uint64_t{1} << page % 64;
  if ((charged_[page / 64].load(std::memory_order_relaxed) & bit) != 0) return;
  if ((charged_[page / 64].fetch_or(bit, std::memory_order_relaxed) & bit) != 0) return;
  budget_.charge(kPageBytes);
  resident_.fetch_add(kPageBytes, std::memory_order_relaxed);
}

void SlotTable::touch(Index index) {
  resident_.fetch_add(kTablePageBytes, std::memory_order_relaxed);
  touched_[index / 64].fetch_or(uint64_t{1} << index % 64, std::memory_order_release);
}

bool SlotTable::reserve(Index index) {
  if (is_touched(index)) return true;
  // Taking the lock touches the descriptor, so refuse before it where a refusal is sure.
  if (!budget_.try_charge(kTablePageBytes, MemoryBudget::For::kNewPage)) return false;
  charge_descriptors(index);
  SlotCluster& slots = clusters_[index];
  const Guard guard(slots.lock);
  if (is_touched(index)) {
    budget_.release(kTablePageBytes);
  } else {
    touch(index);
  }
  return true;
}

SlotWord SlotTable::exchange(SlotCluster& slots, PageIndex page, SlotWord word) {
  CSWAP_DCHECK(page.value < pages_);
  const SlotWord old(words_[page.value].load(std::memory_order_relaxed));
  if (old.is_empty() && !word.is_empty() && slots.used++ == 0) {
    // A request that failed may have settled what this one had reserved.
    const Index index = cluster_of(page);
    if (!is_touched(index)) {
      budget_.charge(kTablePageBytes);
      touch(index);
    }
  } else if (!old.is_empty() && word.is_empty()) {
    CSWAP_DCHECK(slots.used > 0);
    --slots.used;
  }
  // Writing would make the page of table resident, which nobody pays for while nothing is in it.
  if (word != old) words_[page.value].store(word.bits(), std::memory_order_relaxed);
  return old;
}

void SlotTable::settle(SlotCluster& slots, Index index) {
  if (slots.used > 0 || !is_touched(index)) return;
  touched_[index / 64].fetch_and(~(uint64_t{1} << index % 64), std::memory_order_release);
  words_mapping_.release(index * kTablePageBytes, kTablePageBytes);
  resident_.fetch_sub(kTablePageBytes, std::memory_order_relaxed);
  budget_.release(kTablePageBytes);
}

void SlotTable::settle_later(SlotCluster& slots, Index index) {
  if (slots.used > 0 || !is_touched(index)) return;
  const uint64_t bit = uint64_t{1} << index % 64;
  if ((emptied_[index / 64].fetch_or(bit, std::memory_order_relaxed) & bit) == 0) {
    emptied_count_.fetch_add(1, std::memory_order_relaxed);
  }
}

bool SlotTable::settle_emptied() {
  if (emptied_count_.load(std::memory_order_relaxed) == 0) return false;
  bool any = false;
  for (Index group = 0; group * 64 < cluster_count_; ++group) {
    uint64_t bits = emptied_[group].load(std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) {
      any = true;
      const Index index = group * 64 + static_cast<Index>(std::countr_zero(bits));
      SlotCluster& slots = clusters_[index];
      const Guard guard(slots.lock);
      settle(slots, index);
      // Only now, so that who finds no bit finds the memory.
      const uint64_t bit = bits & -bits;
      if ((emptied_[group].fetch_and(~bit, std::memory_order_relaxed) & bit) != 0) {
        emptied_count_.fetch_sub(1, std::memory_order_relaxed);
      }
    }
  }
  return any;
}

void SlotTable::check_invariants() {
  for (Index index = next_touched(0, cluster_count_); index < cluster_count_;
       index = next_touched(index + 1, cluster_count_)) {
    SlotCluster& slots = clusters_[index];
    const Guard guard(slots.lock);
    uint32_t used = 0;
    for (uint32_t i = 0; i < kSlotClusterSlots; ++i) {
      const PageIndex page{first_page_of(index).value + i};
      if (page.value < pages_) used += !get(slots, page).is_empty();
    }
    CSWAP_CHECK(used == slots.used);
  }
}

}  // namespace cswap
