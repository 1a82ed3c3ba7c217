#include "core/memory_budget.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "core/options.h"
#include "core/types.h"

namespace cswap {
namespace {

using For = MemoryBudget::For;
constexpr uint64_t kMiB = uint64_t{1} << 20;

// Charges pages until refused.
uint64_t charge_all(MemoryBudget& budget, For purpose) {
  uint64_t pages = 0;
  while (budget.try_charge(kPageBytes, purpose)) ++pages;
  return pages * kPageBytes;
}

TEST_CASE("without a limit everything is granted and the peak is kept") {
  MemoryBudget budget(0, 90);
  CHECK(budget.try_charge(uint64_t{1} << 50, For::kNewPage));
  budget.release(uint64_t{1} << 49);
  budget.charge(kPageBytes);
  CHECK(budget.used_bytes() == (uint64_t{1} << 49) + kPageBytes);
  CHECK(budget.used_max_bytes() == uint64_t{1} << 50);
}

TEST_CASE("new pages and growth leave the reserve and replacements fill the limit") {
  for (const uint64_t limit : {kMinMemLimitBytes, kMiB, 64 * kMiB, 4096 * kMiB}) {
    MemoryBudget budget(limit, 90);
    const uint64_t reserve = std::min(limit / 32, 4 * kMiB);
    uint64_t used = 0;
    const auto fill_up_to = [&](For purpose, uint64_t bound) {
      used += charge_all(budget, purpose);
      CHECK(used <= bound);
      CHECK(used + kPageBytes > bound);
      CHECK(budget.used_bytes() == used);
      CHECK(budget.used_max_bytes() == used);
    };
    fill_up_to(For::kNewPage, limit - reserve);
    CHECK_FALSE(budget.try_charge(kPageBytes, For::kGrowth));
    fill_up_to(For::kReplacement, limit);
  }
}

TEST_CASE("a refused charge takes nothing and does not move the peak") {
  MemoryBudget budget(kMiB, 90);
  const uint64_t used = charge_all(budget, For::kReplacement);
  CHECK_FALSE(budget.try_charge(kPageBytes, For::kReplacement));
  CHECK(budget.used_bytes() == used);
  CHECK(budget.used_max_bytes() == used);
}

TEST_CASE("a replacement may exceed the limit by credit and slack, only while they are there") {
  MemoryBudget budget(64 * kMiB, 90);
  (void)charge_all(budget, For::kReplacement);
  CHECK_FALSE(budget.over_limit());
  const MemoryBudget::Credit credit{kPageBytes, 2 * kPageBytes};
  budget.add_credit(credit);
  CHECK_FALSE(budget.try_charge(kPageBytes, For::kNewPage));
  CHECK_FALSE(budget.try_charge(kPageBytes, For::kGrowth));
  CHECK(charge_all(budget, For::kReplacement) == 3 * kPageBytes);
  CHECK(budget.over_limit());
  budget.drop_credit(credit);
  CHECK_FALSE(budget.try_charge(kPageBytes, For::kReplacement));
  budget.release(3 * kPageBytes);
  CHECK_FALSE(budget.over_limit());
  CHECK_FALSE(budget.try_charge(kPageBytes, For::kReplacement));
}

TEST_CASE("growth may use the bytes that it replaces and no slack") {
  MemoryBudget budget(64 * kMiB, 90);
  (void)charge_all(budget, For::kGrowth);
  budget.add_credit({2 * kPageBytes, 64 * kPageBytes});
  CHECK(charge_all(budget, For::kGrowth) == 2 * kPageBytes);
}

TEST_CASE("after a refusal new pages wait for the threshold and replacements do not") {
  MemoryBudget budget(kMiB, 90);
  budget.set_limit_reached();
  CHECK_FALSE(budget.try_charge(kPageBytes, For::kNewPage));
  CHECK(budget.try_charge(kPageBytes, For::kReplacement));
  const uint64_t threshold = kMiB / 100 * 90 + kMiB % 100 * 90 / 100;
  budget.reconsider(threshold - 9, 10);
  CHECK(budget.limit_reached());
  CHECK_FALSE(budget.try_charge(kPageBytes, For::kNewPage));
  budget.reconsider(threshold - 10, 10);
  CHECK_FALSE(budget.limit_reached());
  CHECK(budget.try_charge(kPageBytes, For::kNewPage));
}

TEST_CASE("without any object new pages are accepted again, whatever the metadata take") {
  MemoryBudget budget(kMiB, 1);
  budget.set_limit_reached();
  budget.reconsider(16, kMiB / 2);
  CHECK(budget.limit_reached());
  budget.reconsider(0, kMiB / 2);
  CHECK_FALSE(budget.limit_reached());
}

TEST_CASE("the threshold is exact for sizes that 100 does not divide and for 16 TiB") {
  for (const uint64_t limit : {kMinMemLimitBytes + 37, kMaxDeviceBytes, kMaxDeviceBytes * 4}) {
    for (const uint32_t percent : {1u, 50u, 99u, 100u}) {
      MemoryBudget budget(limit, percent);
      // Without overflow: the limits here have at least seven bits to spare.
      const uint64_t exact = limit * percent / 100;
      budget.set_limit_reached();
      budget.reconsider(exact, 1);
      CHECK(budget.limit_reached());
      budget.reconsider(exact, 0);
      CHECK_FALSE(budget.limit_reached());
    }
  }
}

TEST_CASE("threads that charge at once never pass the limit together") {
  constexpr int kThreads = 4;
  MemoryBudget budget(kMiB, 90);
  std::atomic<uint64_t> granted{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 20'000; ++n) {
        if (!budget.try_charge(kPageBytes, For::kNewPage)) continue;
        const uint64_t now = granted.fetch_add(kPageBytes) + kPageBytes;
        if (now > kMiB) std::abort();
        if (n % 3 != 0) {
          granted.fetch_sub(kPageBytes);
          budget.release(kPageBytes);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(budget.used_bytes() == granted.load());
  CHECK(budget.used_max_bytes() <= kMiB);
}

}  // namespace
}  // namespace cswap
