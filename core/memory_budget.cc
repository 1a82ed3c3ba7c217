#include "core/memory_budget.h"

namespace cswap {

bool MemoryBudget::try_charge(uint64_t bytes, For purpose) {
  if (limit_ == 0) {
    charge(bytes);
    return true;
  }
  if (purpose == For::kNewPage && limit_reached()) return false;
  const uint64_t used = used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (used > allowed_bytes(purpose)) {
    release(bytes);
    return false;
  }
  note_peak(used);
  return true;
}

uint64_t MemoryBudget::allowed_bytes(For purpose) const {
  const uint64_t credit = credit_.load(std::memory_order_relaxed);
  switch (purpose) {
    case For::kNewPage:
      return limit_ - reserve_;
    case For::kGrowth:
      return limit_ - reserve_ + credit;
    case For::kReplacement:
      return limit_ + credit + slack_.load(std::memory_order_relaxed);
    case For::kCertain:
      return ~uint64_t{0};
  }
  return 0;
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
