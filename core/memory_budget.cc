#include "core/memory_budget.h"

namespace cswap {

bool MemoryBudget::try_charge(uint64_t bytes, For purpose) {
  if (limit_ == 0) {
    charge(bytes);
    return true;
  }
  const bool replacement = purpose == For::kReplacement;
  if (!replacement && limit_reached()) return false;
  const uint64_t allowed =
      replacement ? limit_ + credit_.load(std::memory_order_relaxed) : limit_ - reserve_;
  const uint64_t used = used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (used > allowed) {
    release(bytes);
    return false;
  }
  note_peak(used);
  return true;
}

void MemoryBudget::charge(uint64_t bytes) {
  note_peak(used_.fetch_add(bytes, std::memory_order_relaxed) + bytes);
}

void MemoryBudget::note_peak(uint64_t used) {
  uint64_t peak = used_max_.load(std::memory_order_relaxed);
  while (used > peak && !used_max_.compare_exchange_weak(peak, used, std::memory_order_relaxed)) {
  }
}

}  // namespace cswap
