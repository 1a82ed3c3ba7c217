// START HERE. The pool: compressed pages of all tenants, in memory that is counted and limited.
//
//   store    1 encode all pages of the request: same-filled, compressed or raw
//            2 take the places of all their objects in one call (2 MiB at a time) and copy them in
//            3 publish the words: one lock round per slot cluster
//            4 hand the displaced objects to the FreeQueues
//            A failure in 1 or 2 gives back what was taken; nothing has been published yet, so a
//            request that fails changes nothing. With batch=off each page is a request of its own.
//   load     1 copy the object out under the slot cluster lock
//            2 check and decompress the copy after it
//   discard  1 empty the words, one lock round per slot cluster that holds anything
//            2 hand the objects to the FreeQueues
//   background (Reclaimer): free what waits, give memory back to the OS after discards
//
// Locks, in their order (core/mutex.h checks it in debug builds):
//   slot cluster    SlotCluster::lock        the 512 words and the count of one slot cluster
//   object cluster  ObjectCluster::lock      the places of one object cluster
//   slot cache      SlotCaches::Cache::lock  the places that a Worker holds ready (alloc=global)
//   store           ObjectStore::store_lock_ the lists of object clusters; with alloc=global also
//                                            all that object cluster locks guard otherwise
//   free queue      FreeQueue::lock          the entries of one queue
// Statistics, the MemoryBudget and the stack of idle Workers are atomics. No request allocates
// from the heap, takes a lock of the whole pool for longer than a list move (alloc=global does, as
// the design that it stands for), or compresses under a lock, with one exception: a write of a part
// of a page whose page others changed kMaxPartialTries times in a row is finished under its slot
// cluster's lock.
//
// Thread safety: all of Pool, from any thread, but for add_tenant().
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/free_queue.h"
#include "core/memory_budget.h"
#include "core/object_store.h"
#include "core/options.h"
#include "core/reclaimer.h"
#include "core/slot_cache.h"
#include "core/stats.h"
#include "core/status.h"
#include "core/tenant.h"
#include "core/worker.h"

namespace cswap {

class Pool {
 public:
  // `arena_for_bytes` is the sum of the tenants' device sizes. Starts a thread unless options say
  // free=sync, so a server that forks makes its pool after that. Throws std::bad_alloc or
  // std::system_error.
  Pool(PoolOptions options, uint64_t arena_for_bytes);

  // Before any request, from one thread. The tenant lives as long as the pool.
  Tenant& add_tenant(std::string name, uint64_t size_bytes);

  // All offsets and lengths are in bytes of the tenant's device, of any alignment, and inside it.
  // Of overlapping requests each page is wholly one's or another's.

  // Stores `data` (at most kMaxRequestBytes) at `offset`. kNoSpace or kDamaged (of a page that was
  // to be written in part) change nothing; with batch=off, nothing of the page that failed and of
  // those after it.
  Status store(Tenant& tenant, uint64_t offset, std::span<const std::byte> data);
  // Loads into `data`. kDamaged when a page cannot be produced; `data` is then undefined.
  Status load(Tenant& tenant, uint64_t offset, std::span<std::byte> data);
  // Makes the range read as zeroes. Fails as store() does, only for pages covered in part.
  Status zero(Tenant& tenant, uint64_t offset, uint64_t length);
  // Empties the slots of all pages that the range covers whole. Never fails.
  void discard(Tenant& tenant, uint64_t offset, uint64_t length);

  // Calls `visit(offset, length, hole)` for runs of pages that cover the range in order, until it
  // returns false. A hole reads as zeroes. No lock is held during the call.
  using ExtentVisitor = std::function<bool(uint64_t offset, uint64_t length, bool hole)>;
  void extents(Tenant& tenant, uint64_t offset, uint64_t length, const ExtentVisitor& visit);

  [[nodiscard]] PoolSnapshot snapshot() const;
  [[nodiscard]] const PoolOptions& options() const { return options_; }

  // Frees all that waits for it, now, and gives back to the OS what a trim left. From any thread,
  // but waits for ever while requests go on.
  void drain_free_queues();

  // Aborts when an invariant of any part is broken. No request may be running. Levels: 0 counts,
  // 1 lists, 2 every object of every tenant.
  void check_invariants(int level);

  // For tests: the stored bytes of the page's object, empty when it has none. No request may touch
  // the page meanwhile.
  [[nodiscard]] std::span<std::byte> object_bytes_for_test(Tenant& tenant, PageIndex page);

 private:
  friend class WriteRequest;

  Status store_page_by_page(Tenant& tenant, Worker& worker, uint64_t offset,
                            std::span<const std::byte> data);
  Status load_page(Tenant& tenant, Worker& worker, PageIndex page, uint32_t from,
                   std::span<std::byte> out);
  void discard_cluster(Tenant& tenant, Worker& worker, PageIndex first, PageIndex end,
                       bool is_trim);
  void discard_pages(Tenant& tenant, Worker& worker, PageIndex first, PageIndex end, bool is_trim);
  // Places for those of `wanted` that have none; false when some got none.
  [[nodiscard]] bool allocate(Worker& worker, std::span<ObjectStore::Wanted> wanted);
  // Objects that no word names any more.
  void free(Worker& worker, std::span<const SlotWord> objects, FreeQueues::Reason reason);
  // Makes all memory usable that only waits. True when there was any.
  [[nodiscard]] bool drain_waiting(Worker& worker);
  // Settles what discards have left empty. Takes slot cluster locks. True when there was any.
  bool settle_emptied();
  [[nodiscard]] bool holds_nothing();
  void give_back_memory();
  [[nodiscard]] uint64_t metadata_bytes() const;
  void reconsider_limit();
  void note_refusal(StatsShard& shard, Status status);

  const PoolOptions options_;
  MemoryBudget budget_;
  ObjectStore store_;
  std::optional<SlotCaches> caches_;  // alloc=global
  FreeQueues queues_;
  WorkerPool workers_;
  std::vector<std::unique_ptr<Tenant>> tenants_;
  std::atomic<uint32_t> asked_{0};      // orders the askers of holds_nothing()
  std::optional<Reclaimer> reclaimer_;  // free=async; last: its thread uses the others
};

}  // namespace cswap
