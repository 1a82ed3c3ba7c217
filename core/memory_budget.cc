#include "core/memory_budget.h"

namespace cswap {

bool MemoryBudget::try_charge(uint64_t bytes, For purpose) {
  if (limit_ == 0) {
    charge(bytes);
    return true;
  }
  if (purpose == For::kNewPage && limit_reached()) return false;
  // Never more than is admitted, not even for a moment: another charge would be refused for it.
  const uint64_t allowed = allowed_bytes(purpose);
  uint64_t used = used_bytes();
  do {
    if (used + bytes > allowed) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  note_peak(used + bytes);
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
