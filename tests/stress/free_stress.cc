// Threads that overwrite, trim and read long runs of pages of their own, so that many objects of
// the same few size classes are taken, wait, and are freed at the same time. Nobody else writes a
// thread's pages, so each must hold what was last written. Another thread reads the statistics.
//
// Then each thread stores a run of pages and trims it, over and over; with free=sync, while the
// other thread frees all that it finds waiting.
//
// With `limit` all pages are raw and as many are stored as the limit takes, less what overwrites in
// flight need twice: then no request may be refused, however much waits to be freed.
//
// usage: stress_free [limit]
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/support/await.h"
#include "tests/support/model_device.h"
#include "tests/support/resident.h"

namespace {

using namespace cswap;
using cswap::test::Page;
using cswap::test::Random;

constexpr uint64_t kThreads = 8;
constexpr uint64_t kPagesEach = 1024;
constexpr uint64_t kDeviceBytes = kThreads * kPagesEach * kPageBytes;
constexpr uint64_t kMaxRun = 64;
// Pages that a thread has stored at most, when there is a limit.
constexpr uint64_t kQuota = 640;
static_assert(kQuota > kPagesEach / 2 + kMaxRun);
constexpr uint64_t kLimitPages = kThreads * (kQuota + kMaxRun) + 64;  // and slot table
constexpr uint64_t kLimitBytes = kLimitPages * kPageBytes / 31 * 32;

// Of one of three size classes, or raw; the generation and the place in every byte that counts.
Page content_of(uint64_t page, uint64_t generation, bool raw) {
  constexpr std::array<size_t, 3> kRandomBytes = {40, 900, 2500};
  Page content = test::random_page(page << 32 | generation);
  const size_t random_bytes = kRandomBytes[generation % kRandomBytes.size()];
  if (!raw) std::fill(content.begin() + random_bytes, content.end(), std::byte{0});
  return content;
}

class Hammer {
 public:
  Hammer(const PoolOptions& options, uint64_t requests, uint64_t seed)
      : limited_(options.mem_limit_bytes > 0),
        pool_(options, kDeviceBytes),
        tenant_(pool_.add_tenant("", kDeviceBytes)),
        requests_(requests),
        seed_(seed) {}

  void run() {
    std::atomic<bool> done{false};
    std::thread reader([&] {
      while (!done) read_statistics();
    });
    run_threads([this](uint64_t thread) { hammer(thread); });
    done = true;
    reader.join();
    check_counts();
    pool_.check_invariants(2);
    check_counts();
    pool_.discard(tenant_, 0, kDeviceBytes);
    displaced_ += stored_;
    done = false;
    std::thread drainer([&] {
      while (!done && pool_.options().free == FreeMode::kSync) pool_.drain_free_queues();
    });
    run_threads([this](uint64_t thread) { fill_and_empty(thread); });
    done = true;
    drainer.join();
    check_counts();
    test::await("all memory to be given back",
                [this] { return pool_.snapshot().pool_total_size == 0; });
    const PoolSnapshot end = pool_.snapshot();
    CSWAP_CHECK(end.free_waiting_objects == 0 && end.free_waiting_bytes == 0);
    CSWAP_CHECK(end.mem_used_total == end.metadata_size);
    CSWAP_CHECK(end.tenants[0].stored_pages == 0 && end.tenants[0].compr_data_size == 0);
    CSWAP_CHECK(end.tenants[0].pool_limit_hit == 0);
    pool_.check_invariants(2);
    std::printf("%llu displaced, %llu freed in requests, %llu in the background, peak %llu bytes\n",
                static_cast<unsigned long long>(displaced_.load()),
                static_cast<unsigned long long>(end.freed_in_request),
                static_cast<unsigned long long>(end.freed_in_background),
                static_cast<unsigned long long>(end.mem_used_max));
  }

 private:
  struct Own {
    uint64_t first;                              // page
    std::array<uint64_t, kPagesEach> written{};  // generation; 0: not stored
    uint64_t stored = 0;
  };

  template <typename Body>
  static void run_threads(const Body& body) {
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) threads.emplace_back([&body, t] { body(t); });
    for (auto& thread : threads) thread.join();
  }

  void hammer(uint64_t thread) {
    Random random(seed_ + thread);
    Own own{thread * kPagesEach};
    for (uint64_t i = 1; i <= requests_; ++i) {
      const uint64_t at = random.below(kPagesEach);
      const uint64_t most = random.below(4) == 0 ? kMaxRun : 4;
      const uint64_t run = std::min(kPagesEach - at, 1 + random.below(most));
      switch (random.below(8)) {
        case 0:
          discard(own, at, run);
          break;
        case 1:
        case 2:
          check(own, at, run);
          break;
        case 3:
          // More than may wait for one Worker, at times.
          if (random.below(16) == 0) discard(own, 0, kPagesEach);
          break;
        default:
          store(own, at, run, i);
      }
    }
    check(own, 0, kPagesEach);
    stored_ += own.stored;
  }

  void fill_and_empty(uint64_t thread) {
    Own own{thread * kPagesEach};
    for (uint64_t i = 1; i <= requests_ / 4; ++i) {
      store(own, 0, FreeQueues::kBatch + i % kMaxRun, i);
      discard(own, 0, kPagesEach);
    }
  }

  void discard(Own& own, uint64_t at, uint64_t run) {
    pool_.discard(tenant_, (own.first + at) * kPageBytes, run * kPageBytes);
    for (uint64_t i = at; i < at + run; ++i) {
      if (own.written[i] == 0) continue;
      own.written[i] = 0;
      --own.stored;
      ++displaced_;
    }
  }

  void store(Own& own, uint64_t at, uint64_t run, uint64_t generation) {
    const auto written = std::span(own.written).subspan(at, run);
    auto fresh = static_cast<uint64_t>(std::ranges::count(written, uint64_t{0}));
    if (limited_ && own.stored + fresh > kQuota) {
      // What it takes to store is then what has just been trimmed.
      discard(own, at < kPagesEach / 2 ? kPagesEach / 2 : 0, kPagesEach / 2);
      fresh = static_cast<uint64_t>(std::ranges::count(written, uint64_t{0}));
    }
    std::vector<Page> pages;
    for (uint64_t i = at; i < at + run; ++i) {
      pages.push_back(content_of(own.first + i, generation, limited_));
    }
    CSWAP_CHECK(pool_.store(tenant_, (own.first + at) * kPageBytes,
                            std::as_bytes(std::span(pages))) == Status::kOk);
    displaced_ += run - fresh;
    own.stored += fresh;
    std::ranges::fill(written, generation);
  }

  void check(const Own& own, uint64_t at, uint64_t run) {
    std::vector<Page> pages(run);
    CSWAP_CHECK(pool_.load(tenant_, (own.first + at) * kPageBytes,
                           std::as_writable_bytes(std::span(pages))) == Status::kOk);
    for (uint64_t i = 0; i < run; ++i) {
      const uint64_t generation = own.written[at + i];
      const Page expected =
          generation == 0 ? Page{} : content_of(own.first + at + i, generation, limited_);
      CSWAP_CHECK(pages[i] == expected);
    }
  }

  void read_statistics() {
    const PoolSnapshot now = pool_.snapshot();
    CSWAP_CHECK(now.freed_in_request >= last_.freed_in_request);
    CSWAP_CHECK(now.freed_in_background >= last_.freed_in_background);
    CSWAP_CHECK(now.mem_used_max >= last_.mem_used_max);
    CSWAP_CHECK(now.mem_limit == 0 ||
                now.mem_used_total <= now.mem_limit + kMaxRun * kThreads * kPageBytes);
    last_ = now;
  }

  // Of an idle pool: every object that was displaced has been freed or waits, or is one of a batch
  // that is being freed.
  void check_counts() const {
    test::await("every object to be counted", [this] {
      const PoolSnapshot now = pool_.snapshot();
      return now.freed_in_request + now.freed_in_background + now.free_waiting_objects ==
             displaced_;
    });
  }

  const bool limited_;
  Pool pool_;
  Tenant& tenant_;
  const uint64_t requests_;  // of each thread
  const uint64_t seed_;
  std::atomic<uint64_t> displaced_{0};
  std::atomic<uint64_t> stored_{0};  // at the end of hammer()
  PoolSnapshot last_;                // the reader's
};

}  // namespace

int main(int argc, char** argv) {
  const bool limited = argc > 1 && argv[1] == std::string_view("limit");
  const PoolOptions options = test::options_for("lz4", false, limited ? kLimitBytes : 0);
  const uint64_t requests = test::kUnderTsan ? 300 : test::kUnderAsan ? 1'500 : 10'000;
  Hammer(options, requests, test::test_seed()).run();
  return 0;
}
