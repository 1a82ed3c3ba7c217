// What a request needs besides the pool: codec state, scratch and hints. Leased for the time of
// one request, so there are as many as requests ever ran at one moment, not as there are threads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "compress/codec.h"
#include "core/mapping.h"
#include "core/object_store.h"
#include "core/options.h"
#include "core/page_codec.h"
#include "core/slot_word.h"

namespace cswap {

// Used by the one thread that leased it.
class Worker {
 public:
  // Throws std::bad_alloc or std::system_error.
  Worker(uint32_t index, const Codec& codec);

  // Words of all pages of the largest request, which need not be aligned. Touched lazily.
  static constexpr size_t kMaxWords = kMaxRequestBytes / kPageBytes + 1;
  static constexpr size_t kEdges = 2;
  // Pages that are encoded before their objects get their places together: a slot cluster's, so
  // that no folio is cut.
  static constexpr size_t kBatchPages = kSlotClusterSlots;

  // A batch of pages between encoding and placing.
  struct Batch {
    std::array<EncodedPage, kBatchPages> pages;
    std::array<ObjectStore::Wanted, kBatchPages> wanted;  // of those that need an object
    // What the codec made of them, each at an offset of kObjectAlignBytes.
    alignas(64) std::array<std::byte, kBatchPages * kPageBytes> bytes;
  };

  struct Scratch {
    alignas(64) std::array<std::byte, kMaxObjectBytes> object;  // copied out
    alignas(64) std::array<std::byte, kPageBytes> page;         // decompressed
    // For the two pages that an unaligned request may write in part: the object as it was, and
    // the page as it is to be.
    alignas(64) std::array<std::array<std::byte, kMaxObjectBytes>, kEdges> edge_object;
    alignas(64) std::array<std::array<std::byte, kPageBytes>, kEdges> edge_page;
    std::array<SlotWord, kSlotClusterSlots> displaced;
    ObjectStore::Hints hints;
    std::array<SlotWord, kMaxWords> words;
    Batch batch;
  };

  [[nodiscard]] Scratch& scratch() const { return *mapping_.as<Scratch>(); }
  [[nodiscard]] CodecContext& codec() const { return *codec_; }
  // Names this worker's shard of statistics.
  [[nodiscard]] uint32_t index() const { return index_; }

 private:
  friend class WorkerPool;

  const uint32_t index_;
  const Mapping mapping_;
  const std::unique_ptr<CodecContext> codec_;
  std::atomic<uint32_t> next_idle_{0};  // index + 1, while idle
};

// Thread-safe and without a lock: idle workers form a stack (R. K. Treiber's, its head tagged
// against reuse), so that the last used one, whose scratch is in a cache, is taken first.
class WorkerPool {
 public:
  // Makes `initial` workers now, at most kMaxWorkers. Throws std::bad_alloc or std::system_error.
  WorkerPool(const Codec& codec, uint32_t initial);
  ~WorkerPool();

  class Lease {
   public:
    explicit Lease(WorkerPool& pool) : pool_(pool), worker_(pool.take()) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { pool_.give_back(worker_); }
    Worker& operator*() const { return worker_; }

   private:
    WorkerPool& pool_;
    Worker& worker_;
  };

  [[nodiscard]] uint32_t made() const { return made_.load(std::memory_order_acquire); }

 private:
  // Makes a worker when none is idle, and waits for one when kMaxWorkers are made or memory for
  // another is refused: a request needs no memory that could be refused.
  Worker& take();
  void give_back(Worker& worker);
  Worker* pop_idle();
  Worker* make();
  void delete_workers();

  const Codec& codec_;
  std::array<std::atomic<Worker*>, kMaxWorkers> workers_{};
  std::atomic<uint32_t> made_{0};
  std::atomic<uint64_t> idle_{0};     // low half: index + 1 of the top, high half: changes so far
  std::atomic<uint32_t> returns_{0};  // awaited by takers that found nothing
};

}  // namespace cswap
