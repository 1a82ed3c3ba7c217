#include "core/worker.h"

#include <algorithm>
#include <new>
#include <system_error>

namespace cswap {

Worker::Worker(uint32_t index, const Codec& codec)
    : index_(index),
      mapping_(sizeof(Scratch), "a request's scratch"),
      codec_(codec.make_context()) {}

WorkerPool::WorkerPool(const Codec& codec, uint32_t initial) : codec_(codec) {
  try {
    for (uint32_t i = 0; i < std::min(initial, kMaxWorkers); ++i) {
      const auto index = made_.load(std::memory_order_relaxed);
      workers_[index].store(new Worker(index, codec), std::memory_order_relaxed);
      made_.store(index + 1, std::memory_order_release);
      give_back(*workers_[index].load(std::memory_order_relaxed));
    }
  } catch (...) {
    delete_workers();
    throw;
  }
}

WorkerPool::~WorkerPool() { delete_workers(); }

void WorkerPool::delete_workers() {
  for (auto& worker : workers_) delete worker.load(std::memory_order_relaxed);
}

Worker& WorkerPool::take() {
  for (;;) {
    const uint32_t returns = returns_.load(std::memory_order_acquire);
    if (Worker* const worker = pop_idle()) return *worker;
    if (Worker* const worker = make()) return *worker;
    returns_.wait(returns, std::memory_order_acquire);
  }
}

Worker* WorkerPool::pop_idle() {
  uint64_t head = idle_.load(std::memory_order_acquire);
  for (;;) {
    const auto top = static_cast<uint32_t>(head);
    if (top == 0) return nullptr;
    Worker* const worker = workers_[top - 1].load(std::memory_order_relaxed);
    // May be stale when another thread took the top meanwhile; then the tag differs below.
    const uint64_t next = worker->next_idle_.load(std::memory_order_relaxed);
    const uint64_t changes = (head >> 32) + 1;
    if (idle_.compare_exchange_weak(head, changes << 32 | next, std::memory_order_acquire)) {
      return worker;
    }
  }
}

Worker* WorkerPool::make() {
  uint32_t made = made_.load(std::memory_order_relaxed);
  do {
    if (made == kMaxWorkers) return nullptr;
  } while (!made_.compare_exchange_weak(made, made + 1, std::memory_order_acq_rel));
  // The index is this thread's own now; others see the worker once it has been given back.
  try {
    auto* const worker = new Worker(made, codec_);
    workers_[made].store(worker, std::memory_order_relaxed);
    return worker;
  } catch (const std::bad_alloc&) {
  } catch (const std::system_error&) {
  }
  // Give the index up if no other was taken since; else it stays unused, which costs nothing but
  // one of kMaxWorkers.
  uint32_t expected = made + 1;
  made_.compare_exchange_strong(expected, made, std::memory_order_acq_rel);
  return nullptr;
}

void WorkerPool::give_back(Worker& worker) {
  uint64_t head = idle_.load(std::memory_order_relaxed);
  uint64_t desired = 0;
  do {
    worker.next_idle_.store(static_cast<uint32_t>(head), std::memory_order_relaxed);
    desired = ((head >> 32) + 1) << 32 | (worker.index() + 1);
    // Release: publishes the worker's scratch and the pointer to it to the next taker.
  } while (!idle_.compare_exchange_weak(head, desired, std::memory_order_release,
                                        std::memory_order_relaxed));
  // Takers wait only when all workers are busy, so nearly always nobody is to be woken.
  returns_.fetch_add(1, std::memory_order_release);
  returns_.notify_one();
}

}  // namespace cswap
