#include "core/worker.h"

#include <doctest/doctest.h>

#include <deque>
#include <new>
#include <set>
#include <thread>

#include "compress/codecs.h"

namespace cswap {
namespace {

// A codec that has memory for so many contexts and no more.
class ScarceCodec final : public Codec {
 public:
  explicit ScarceCodec(int contexts) : left_(contexts) {}
  [[nodiscard]] Encoding encoding() const override { return Encoding::kRaw; }
  [[nodiscard]] std::string name() const override { return "scarce"; }
  [[nodiscard]] std::unique_ptr<CodecContext> make_context() const override {
    if (left_.fetch_sub(1) <= 0) throw std::bad_alloc();
    return make_none_codec()->make_context();
  }

 private:
  mutable std::atomic<int> left_;
};

TEST_CASE("the worker that was given back last is taken first and no other is made") {
  const auto codec = make_none_codec();
  WorkerPool pool(*codec, 2);
  CHECK(pool.made() == 2);
  uint32_t last = 0;
  {
    const WorkerPool::Lease a(pool);
    const WorkerPool::Lease b(pool);
    CHECK((*a).index() != (*b).index());
    last = (*a).index();  // a outlives b, so it is on top
  }
  for (int i = 0; i < 100; ++i) {
    const WorkerPool::Lease lease(pool);
    CHECK((*lease).index() == last);
  }
  CHECK(pool.made() == 2);
}

TEST_CASE("as many workers as requests at one moment are made, each with its own index") {
  const auto codec = make_none_codec();
  WorkerPool pool(*codec, 1);
  std::deque<WorkerPool::Lease> leases;
  std::set<uint32_t> indices;
  for (uint32_t i = 0; i < kMaxWorkers; ++i) indices.insert((*leases.emplace_back(pool)).index());
  CHECK(indices.size() == kMaxWorkers);
  CHECK(*indices.rbegin() == kMaxWorkers - 1);
  CHECK(pool.made() == kMaxWorkers);
}

TEST_CASE("a machine with more cores than workers may be made starts with what there may be") {
  const auto codec = make_none_codec();
  WorkerPool pool(*codec, kMaxWorkers + 44);
  CHECK(pool.made() == kMaxWorkers);
  const WorkerPool::Lease lease(pool);
  CHECK((*lease).index() < kMaxWorkers);
}

TEST_CASE("one request more than workers may be made waits for one") {
  const auto codec = make_none_codec();
  WorkerPool pool(*codec, 1);
  std::deque<WorkerPool::Lease> leases;
  for (uint32_t i = 0; i < kMaxWorkers; ++i) leases.emplace_back(pool);
  const uint32_t first = (*leases.front()).index();
  std::atomic<bool> got{false};
  std::atomic<uint32_t> index{0};
  std::thread waiting([&] {
    const WorkerPool::Lease lease(pool);
    index = (*lease).index();
    got = true;
    got.notify_one();
  });
  CHECK_FALSE(got.load());
  leases.pop_front();
  got.wait(false);
  waiting.join();
  CHECK(index.load() == first);
  CHECK(pool.made() == kMaxWorkers);
}

TEST_CASE("requests share the workers there are when memory for another is refused") {
  ScarceCodec codec(2);
  WorkerPool pool(codec, 1);
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        const WorkerPool::Lease lease(pool);
        const int now = ++running;
        int seen = most.load();
        while (now > seen && !most.compare_exchange_weak(seen, now)) {
        }
        --running;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(most.load() <= 2);
  CHECK(most.load() >= 1);
}

TEST_CASE("a pool of workers whose first cannot be made says so and leaves nothing behind") {
  ScarceCodec codec(2);
  CHECK_THROWS_AS(WorkerPool(codec, 5), std::bad_alloc);
}

TEST_CASE("no worker is ever leased to two at once, and what one wrote the next one sees") {
  const auto codec = make_none_codec();
  WorkerPool pool(*codec, 1);
  constexpr int kThreads = 8;
  constexpr uint64_t kLeases = 4000;
  std::array<std::atomic<int>, kMaxWorkers> holders{};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (uint64_t i = 0; i < kLeases; ++i) {
        const WorkerPool::Lease lease(pool);
        Worker& worker = *lease;
        if (holders[worker.index()].fetch_add(1) != 0) std::abort();
        // Not atomic: TSan sees it when a lease does not hand over what the one before wrote.
        ++worker.scratch().hints.cluster[0];
        if (i % 64 == 0) std::this_thread::yield();
        holders[worker.index()].fetch_sub(1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(pool.made() <= kThreads);
  uint64_t sum = 0;
  std::deque<WorkerPool::Lease> leases;
  for (uint32_t i = pool.made(); i > 0; --i) {
    sum += (*leases.emplace_back(pool)).scratch().hints.cluster[0];
  }
  CHECK(sum == kThreads * kLeases);
}

}  // namespace
}  // namespace cswap
