#include "core/mutex.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <new>
#include <thread>
#include <vector>

#include "tests/support/death.h"

namespace cswap {
namespace {

using SlotLock = Mutex<LockRank::kSlotCluster>;
using ObjectLock = Mutex<LockRank::kObjectCluster>;
using StoreLock = Mutex<LockRank::kStore>;

TEST_CASE("a lock keeps threads apart, whether they find it free, spin or sleep") {
  SlotLock lock;
  uint64_t count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        const Guard guard(lock);
        ++count;
        if (i % 1000 == 0) std::this_thread::yield();  // held long enough for others to sleep
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(count == 8 * 20'000);
}

TEST_CASE("try_lock takes a free lock and leaves a held one") {
  SlotLock lock;
  REQUIRE(lock.try_lock());
  bool taken = true;
  std::thread other([&] {
    taken = lock.try_lock();
    if (taken) lock.unlock();
  });
  other.join();
  CHECK_FALSE(taken);
  lock.unlock();
  REQUIRE(lock.try_lock());
  lock.unlock();
}

TEST_CASE("zeroed memory is a free lock of four bytes") {
  static_assert(sizeof(SlotLock) == 4);
  alignas(SlotLock) std::array<std::byte, sizeof(SlotLock)> memory{};
  auto& lock = *std::launder(reinterpret_cast<SlotLock*>(memory.data()));
  CHECK(lock.try_lock());
  lock.unlock();
  CHECK(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_CASE("locks are taken in the order of their ranks") {
  CHECK_FALSE(test::aborts([] {
    std::array<SlotLock, 2> slots;
    ObjectLock object;
    StoreLock store;
    const Guard a(slots[0]);
    const Guard b(slots[1]);
    const Guard c(object);
    const Guard d(store);
  }));
}

#ifndef NDEBUG
TEST_CASE("a lock taken out of order aborts a debug build") {
  CHECK(test::aborts([] {
    ObjectLock object;
    SlotLock slot;
    const Guard a(object);
    const Guard b(slot);
  }));
  CHECK(test::aborts([] {
    ObjectLock object;
    StoreLock store;
    const Guard a(store);
    const Guard b(object);
  }));
  CHECK(test::aborts([] {
    std::array<SlotLock, 2> slots;
    const Guard a(slots[1]);
    const Guard b(slots[0]);  // descending address
  }));
  CHECK(test::aborts([] {
    std::array<ObjectLock, 2> objects;
    const Guard a(objects[0]);
    const Guard b(objects[1]);  // one at a time
  }));
  CHECK(test::aborts([] {
    SlotLock slot;
    ObjectLock object;
    const Guard a(object);
    (void)slot.try_lock();
  }));
}

TEST_CASE("a lock taken twice by one thread aborts a debug build instead of hanging it") {
  CHECK(test::aborts([] {
    SlotLock slot;
    const Guard a(slot);
    slot.lock();
  }));
}

TEST_CASE("a lock let go by a thread that does not hold it aborts a debug build") {
  CHECK(test::aborts([] {
    SlotLock slot;
    slot.unlock();
  }));
}
#endif

}  // namespace
}  // namespace cswap
