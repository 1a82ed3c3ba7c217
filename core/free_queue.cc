#include "core/free_queue.h"

#include <algorithm>
#include <chrono>

#include "core/check.h"

namespace cswap {

FreeQueues::FreeQueues(ObjectStore& store, const MemoryBudget& budget, FreeMode mode, bool checksum)
    : store_(store),
      budget_(budget),
      mode_(mode),
      checksum_bytes_(checksum ? kChecksumBytes : 0),
      mapping_(kMaxWorkers * sizeof(FreeQueue), "the free queues") {}

uint32_t FreeQueues::object_class_bytes(SlotWord word) const {
  return class_bytes(size_class_of(word.object_bytes() + checksum_bytes_));
}

void FreeQueues::note_used(uint32_t worker) {
  uint32_t used = used_.load(std::memory_order_relaxed);
  // Sequentially consistent, as the reading in waiting_objects_exactly().
  while (used <= worker && !used_.compare_exchange_weak(used, worker + 1)) {
  }
}

FreeQueues::Need FreeQueues::put(uint32_t worker, std::span<const SlotWord> objects,
                                 Reason reason) {
  if (objects.empty()) return Need::kNone;
  FreeQueue& own = queue(worker);
  note_used(worker);
  if (mode_ == FreeMode::kAsync) {
    const bool trimmed = reason == Reason::kTrimmed;
    const size_t pushed = push(own, objects, trimmed ? kCapacity : kCapacityForReplaced);
    free_directly(own, objects.subspan(pushed));
    const bool much =
        own.count.load(std::memory_order_relaxed) >= (trimmed ? kManyTrimmed : kManyReplaced);
    return much ? Need::kMuch : Need::kSome;
  }
  // The batch may be freed by a drain() of another thread instead; the rest finds room then.
  for (;;) {
    const size_t pushed = push(own, objects, kBatch);
    objects = objects.subspan(pushed);
    if (own.count.load(std::memory_order_relaxed) >= kBatch) {
      free_from(own, own.batch, kBatch, own.freed_objects, own.latency);
    } else if (pushed == 0) {
      free_directly(own, objects);
      break;
    }
    if (objects.empty()) break;
  }
  return Need::kNone;
}

// Puts as many as fit; returns how many. None near the limit: who empties the queues then and has
// said so before finds what was put earlier, and nothing is put later.
size_t FreeQueues::push(FreeQueue& to, std::span<const SlotWord> objects, uint32_t capacity) {
  const Guard guard(to.lock);
  if (budget_.near_limit()) return 0;
  const uint32_t count = to.count.load(std::memory_order_relaxed);
  const size_t pushed = std::min<size_t>(objects.size(), capacity - std::min(capacity, count));
  uint64_t bytes = to.bytes.load(std::memory_order_relaxed);
  for (size_t i = 0; i < pushed; ++i) {
    to.ring[(to.first + count + i) % kCapacity] = objects[i];
    bytes += object_class_bytes(objects[i]);
  }
  to.count.store(count + static_cast<uint32_t>(pushed), std::memory_order_relaxed);
  to.bytes.store(bytes, std::memory_order_relaxed);
  return pushed;
}

// Frees as many as wait, at most `most`; returns how many. Others may take them first.
size_t FreeQueues::free_from(FreeQueue& from, Batch& batch, size_t most, StatsCell& freed,
                             Latency& latency) {
  take_batch(from, batch, most);
  if (batch.count == 0) return 0;
  free_batch(batch, freed, latency);
  from.in_flight.fetch_sub(1, std::memory_order_release);
  from.ended.fetch_add(1, std::memory_order_release);
  from.ended.notify_all();
  return batch.count;
}

// Counts the batch as in flight, if there is one.
void FreeQueues::take_batch(FreeQueue& from, Batch& batch, size_t most) {
  const Guard guard(from.lock);
  const uint32_t count = from.count.load(std::memory_order_relaxed);
  uint64_t bytes = from.bytes.load(std::memory_order_relaxed);
  batch.count = std::min<size_t>(count, most);
  if (batch.count == 0) return;
  for (size_t i = 0; i < batch.count; ++i) {
    const SlotWord word = from.ring[(from.first + i) % kCapacity];
    batch.objects[i] = word.object_offset();
    bytes -= object_class_bytes(word);
  }
  from.first = (from.first + static_cast<uint32_t>(batch.count)) % kCapacity;
  from.count.store(count - static_cast<uint32_t>(batch.count), std::memory_order_relaxed);
  from.bytes.store(bytes, std::memory_order_relaxed);
  // Under the lock, so that who finds the queue empty sees the batch.
  from.in_flight.fetch_add(1, std::memory_order_relaxed);
}

void FreeQueues::free_batch(Batch& batch, StatsCell& freed, Latency& latency) {
  const auto objects = std::span(batch.objects).first(batch.count);
  const auto start = std::chrono::steady_clock::now();
  // Neighbours share a lock round.
  std::ranges::sort(objects);
  for (size_t at = 0; at < objects.size(); at += kBatch) {
    store_.free(objects.subspan(at, std::min(kBatch, objects.size() - at)));
  }
  const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - start;
  freed.add(batch.count);
  latency[order_of(batch.count)].add(static_cast<uint64_t>(taken.count()));
}

void FreeQueues::free_directly(FreeQueue& own, std::span<const SlotWord> objects) {
  Batch& batch = own.batch;
  while (!objects.empty()) {
    batch.count = std::min(objects.size(), kBatch);
    for (size_t i = 0; i < batch.count; ++i) batch.objects[i] = objects[i].object_offset();
    free_batch(batch, own.freed_objects, own.latency);
    objects = objects.subspan(batch.count);
  }
}

bool FreeQueues::drain(uint32_t worker) {
  FreeQueue& own = queue(worker);
  note_used(worker);
  const uint32_t used = used_.load(std::memory_order_relaxed);
  bool any = false;
  for (uint32_t i = 0; i < used; ++i) {
    FreeQueue& from = queue(i);
    while (free_from(from, own.batch, kBatch, own.freed_objects, own.latency) > 0) any = true;
    if (from.in_flight.load(std::memory_order_acquire) == 0) continue;
    any = true;
    await_others(from);
  }
  return any;
}

// Waits until batches that were taken from the queue before are freed. Others may be taken
// meanwhile, so for a few only.
void FreeQueues::await_others(FreeQueue& from) {
  for (int i = 0; i < 8; ++i) {
    const uint32_t ended = from.ended.load(std::memory_order_acquire);
    if (from.in_flight.load(std::memory_order_acquire) == 0) return;
    from.ended.wait(ended, std::memory_order_acquire);
  }
}

size_t FreeQueues::free_batch_in_background() {
  const uint32_t used = used_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < used; ++i) {
    FreeQueue& from = queue(next_++ % used);
    if (from.count.load(std::memory_order_relaxed) == 0) continue;
    const size_t freed = free_from(from, background_batch_, kBackgroundBatch, freed_in_background_,
                                   background_latency_);
    if (freed > 0) return freed;
  }
  return 0;
}

uint64_t FreeQueues::waiting_objects_exactly() {
  uint64_t waiting = 0;
  const uint32_t used = used_.load();
  for (uint32_t i = 0; i < used; ++i) {
    FreeQueue& from = queue(i);
    const Guard guard(from.lock);
    waiting += from.count.load(std::memory_order_relaxed);
  }
  return waiting;
}

uint64_t FreeQueues::waiting_objects() const {
  uint64_t waiting = 0;
  const uint32_t used = used_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < used; ++i) waiting += queue(i).count.load(std::memory_order_relaxed);
  return waiting;
}

void FreeQueues::add_to(PoolSnapshot& snapshot) const {
  const uint32_t used = used_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < used; ++i) {
    const FreeQueue& from = queue(i);
    snapshot.free_waiting_objects += from.count.load(std::memory_order_relaxed);
    snapshot.free_waiting_bytes += from.bytes.load(std::memory_order_relaxed);
    snapshot.freed_in_request += from.freed_objects.get();
    for (size_t order = 0; order < kOrders; ++order) {
      from.latency[order].add_to(snapshot.free_latency[order]);
    }
  }
  snapshot.freed_in_background = freed_in_background_.get();
  for (size_t order = 0; order < kOrders; ++order) {
    background_latency_[order].add_to(snapshot.free_latency[order]);
  }
}

}  // namespace cswap
