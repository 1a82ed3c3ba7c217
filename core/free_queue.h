// Objects that no slot word names any more wait here to be freed, off the path of the request that
// displaced them (as C. Li's asynchronous free of swap slots; before it, the kernel's slot caches).
//
//   FreeMode::kAsync  a queue for each Worker, drained by the Reclaimer; what does not fit into a
//                     queue is freed by its request
//   FreeMode::kSync   each Worker gathers 64, then the request that finds so many frees them
//
// The queues are bounded, so what waits is too. Near the limit nothing is put there, and drain()
// empties them before anything is refused.
//
// Locks: free queue (each FreeQueue::lock), to put or take entries; nothing is freed under it.
// Thread safety: all, from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "core/mapping.h"
#include "core/memory_budget.h"
#include "core/mutex.h"
#include "core/object_store.h"
#include "core/options.h"
#include "core/slot_word.h"
#include "core/stats.h"

namespace cswap {

class FreeQueues {
 public:
  // Objects that are freed under one lock round, as the kernel's SWAP_SLOTS_CACHE_SIZE.
  static constexpr size_t kBatch = 64;
  // Objects that the Reclaimer takes and sorts at once. Many, so that it visits each object cluster
  // once: its descriptor goes from one core's cache to the other's and back.
  static constexpr size_t kBackgroundBatch = 1024;
  // Objects that wait for a Worker at most: as many as the trims of some milliseconds displace; and
  // fewer when others take their places meanwhile, lest the pool grow by what waits.
  static constexpr uint32_t kCapacity = 16384;
  static constexpr uint32_t kCapacityForReplaced = 1024;

  // Why objects are to be freed. New ones soon need the places of replaced ones, which are better
  // used while their cache lines are warm; nothing waits for those of trimmed ones.
  enum class Reason { kReplaced, kTrimmed };

  // How urgently the Reclaimer is needed after put().
  enum class Need { kNone, kSome, kMuch };

  // `store` and `budget` must outlive the queues. `checksum` as in PoolOptions: objects are so much
  // larger. Throws std::system_error.
  FreeQueues(ObjectStore& store, const MemoryBudget& budget, FreeMode mode, bool checksum);

  // Takes over the objects that these words name, for the Worker of this index, whose holder calls.
  // Frees some, or all, before it returns. Takes free queue, object cluster and store locks.
  Need put(uint32_t worker, std::span<const SlotWord> objects, Reason reason);

  // Frees what waits, and waits for batches that others are freeing; the caller is the Worker's
  // holder. True when there was anything. Locks as put(), and the caller may hold slot clusters'.
  bool drain(uint32_t worker);

  // For the Reclaimer alone: frees one batch, from the queues in turn. Returns how many objects it
  // had, 0 when nothing waits. Locks as put().
  size_t free_batch_in_background();

  // Objects that wait, seen under the queues' locks: what was put before is counted.
  [[nodiscard]] uint64_t waiting_objects_exactly();
  // The same without a lock: somewhat older or newer.
  [[nodiscard]] uint64_t waiting_objects() const;
  // Adds what it counted to a snapshot.
  void add_to(PoolSnapshot& snapshot) const;

 private:
  // With so many in one queue the Reclaimer need not wait for more.
  static constexpr uint32_t kManyReplaced = 512;
  static constexpr uint32_t kManyTrimmed = kCapacity / 2;

  using Latency = std::array<LatencyHistogram, kOrders>;

  // The objects of one batch. Never on a stack: to make one there would cost more than to free it.
  struct Batch {
    std::array<ArenaOffset, kBackgroundBatch> objects;
    size_t count;
  };

  // Valid when all zero; touched lazily.
  struct alignas(64) FreeQueue {
    Mutex<LockRank::kFreeQueue> lock;
    uint32_t first CSWAP_GUARDED_BY(lock);
    // Written under the lock.
    std::atomic<uint32_t> count;
    std::atomic<uint64_t> bytes;
    // Batches taken from this queue that are being freed, and how many have been; awaited by
    // drain().
    std::atomic<uint32_t> in_flight;
    std::atomic<uint32_t> ended;
    // The holder of the Worker's: the batch that it frees, and what it freed.
    Batch batch;
    StatsCell freed_objects;
    Latency latency;
    std::array<SlotWord, kCapacity> ring CSWAP_GUARDED_BY(lock);
  };

  [[nodiscard]] uint32_t object_class_bytes(SlotWord word) const;
  size_t push(FreeQueue& queue, std::span<const SlotWord> objects, uint32_t capacity);
  size_t free_from(FreeQueue& from, Batch& batch, size_t most, StatsCell& freed, Latency& latency);
  void take_batch(FreeQueue& from, Batch& batch, size_t most);
  void free_batch(Batch& batch, StatsCell& freed, Latency& latency);
  void free_directly(FreeQueue& queue, std::span<const SlotWord> objects);
  void await_others(FreeQueue& queue);
  void note_used(uint32_t worker);
  [[nodiscard]] FreeQueue& queue(uint32_t worker) const { return mapping_.as<FreeQueue>()[worker]; }

  ObjectStore& store_;
  const MemoryBudget& budget_;
  const FreeMode mode_;
  const uint32_t checksum_bytes_;
  const Mapping mapping_;          // FreeQueue[kMaxWorkers]
  std::atomic<uint32_t> used_{0};  // queues up to the last that was ever used
  // The Reclaimer's own.
  Batch background_batch_{};
  uint32_t next_ = 0;
  StatsCell freed_in_background_;
  Latency background_latency_;
};

}  // namespace cswap
