#include "core/lock_stats.h"

#include <doctest/doctest.h>

#include <atomic>
#include <ranges>
#include <thread>
#include <vector>

#include "core/mutex.h"

namespace cswap {
namespace {

using StoreLock = Mutex<LockRank::kStore>;

LockSnapshot store_locks() {
  for (LockSnapshot& lock : LockStats::snapshot()) {
    if (lock.name == "store") return lock;
  }
  FAIL("no class named store");
  return {};
}

const LockWaits* find_caller(const LockSnapshot& lock, std::string_view name) {
  const auto found = std::ranges::find(lock.callers, name, &LockWaits::caller);
  return found == lock.callers.end() ? nullptr : &*found;
}

void wait_in_this_function(StoreLock& lock) { const Guard guard(lock); }

TEST_CASE("every lock taken is counted once, by threads that ended too") {
  const uint64_t before = store_locks().acquired;
  StoreLock lock;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&lock] {
      for (int i = 0; i < 1000; ++i) const Guard guard(lock);
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(lock.try_lock());
  lock.unlock();
  CHECK(store_locks().acquired == before + 8 * 1000 + 1);
}

TEST_CASE("a free lock counts no wait") {
  const LockSnapshot before = store_locks();
  StoreLock lock;
  for (int i = 0; i < 100; ++i) const Guard guard(lock);
  CHECK(store_locks().waits.contended == before.waits.contended);
  CHECK(store_locks().waits.total_ns == before.waits.total_ns);
}

TEST_CASE("a wait is counted for the function that waited, with its length") {
  StoreLock lock;
  lock.lock();
  std::atomic<bool> started{false};
  std::thread waiter([&] {
    started = true;
    wait_in_this_function(lock);
  });
  // The waiter can be seen to wait only by its lock's word; so hold it until a while after it
  // started, however long that takes on a busy machine.
  while (!started) std::this_thread::yield();
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(50)) {
    std::this_thread::yield();
  }
  lock.unlock();
  waiter.join();
  const LockSnapshot after = store_locks();
  const LockWaits* const waits = find_caller(after, "wait_in_this_function");
  REQUIRE(waits != nullptr);
  CHECK(waits->contended == 1);
  CHECK(waits->min_ns > 0);
  CHECK(waits->min_ns == waits->max_ns);
  CHECK(waits->total_ns == waits->max_ns);
  CHECK(waits->average_ns() == waits->total_ns);
  CHECK(after.waits.contended >= 1);
  CHECK(LockStats::table({after}).find("store") != std::string::npos);
  CHECK(LockStats::table({after}).find("wait_in_this_function") != std::string::npos);
}

TEST_CASE("the table has the columns of perf lock contention") {
  LockSnapshot lock;
  lock.name = "store";
  lock.callers = {{"free", 91, 204'620, 4'510, 700}, {"allocate", 2, 1'500'000'000, 999, 1}};
  const std::string table = LockStats::table({lock});
  CHECK(table ==
        " contended   total wait     max wait     avg wait   type           caller\n"
        "        91    204.62 us      4.51 us      2.25 us   store          free\n"
        "         2       1.50 s    999.00 ns    750.00 ms   store          allocate\n");
}

}  // namespace
}  // namespace cswap
