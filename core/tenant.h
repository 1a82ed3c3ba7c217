// One export: a device with its slot table and its counters.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/mapping.h"
#include "core/memory_budget.h"
#include "core/options.h"
#include "core/slot_table.h"
#include "core/stats.h"

namespace cswap {

class Tenant {
 public:
  // `size_bytes` is a multiple of a page. Throws std::system_error.
  Tenant(std::string name, uint64_t size_bytes, MemoryBudget& budget)
      : name_(std::move(name)),
        size_bytes_(size_bytes),
        slots_(size_bytes / kPageBytes, budget),
        shards_(kMaxWorkers * sizeof(StatsShard), "statistics") {}

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] SlotTable& slots() { return slots_; }
  [[nodiscard]] const SlotTable& slots() const { return slots_; }
  // The shard of the worker with this index; all zero, so untouched, until it counts.
  [[nodiscard]] StatsShard& shard(uint32_t worker) { return shards_.as<StatsShard>()[worker]; }
  [[nodiscard]] std::span<const StatsShard> shards(uint32_t workers) const {
    return {shards_.as<StatsShard>(), workers};
  }

 private:
  const std::string name_;
  const uint64_t size_bytes_;
  SlotTable slots_;
  const Mapping shards_;
};

}  // namespace cswap
