// What was displaced waits to be freed: how much may wait, for whom it makes way, and that all of
// it comes back.
//
// With free=async the pool's thread can be held where it starts, so that what waits stays.
#include <doctest/doctest.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "tests/support/await.h"
#include "tests/support/model_device.h"
#include "tests/support/resident.h"

namespace cswap {
namespace {

using test::await;
using test::ModelDevice;
using test::options_for;
using test::Page;
using test::PageKind;

constexpr uint64_t kMiB = uint64_t{1} << 20;

bool is_async() { return test::test_switches().free == FreeMode::kAsync; }

// Holds the pool's own thread until it is opened.
class Gate {
 public:
  [[nodiscard]] PoolOptions options(uint64_t limit = 0) {
    PoolOptions options = options_for("lz4", false, limit);
    options.on_thread_start = [this] {
      started_.fetch_add(1);
      open_.wait(false);
    };
    return options;
  }
  void open() {
    open_ = true;
    open_.notify_all();
  }
  [[nodiscard]] int started() const { return started_; }

 private:
  std::atomic<bool> open_{false};
  std::atomic<int> started_{0};
};

// Opens it before what was made after it, so a pool, is destroyed.
struct OpenAtEnd {
  explicit OpenAtEnd(Gate& opened) : gate(opened) {}
  OpenAtEnd(const OpenAtEnd&) = delete;
  OpenAtEnd& operator=(const OpenAtEnd&) = delete;
  ~OpenAtEnd() { gate.open(); }
  Gate& gate;
};

// A pool with one device whose thread is held.
struct HeldPool {
  explicit HeldPool(uint64_t device_bytes, uint64_t limit = 0)
      : pool(gate.options(limit), device_bytes),
        tenant(pool.add_tenant("", device_bytes)),
        open_at_end(gate) {}

  Status store(uint64_t index, std::span<const std::byte> data) {
    return pool.store(tenant, index * kPageBytes, data);
  }
  // Stores pages from `first` on that need an object each.
  void fill(uint64_t first, uint64_t pages, PageKind kind) {
    for (uint64_t i = first; i < first + pages; ++i) {
      REQUIRE(store(i, page_of(kind, i)) == Status::kOk);
    }
  }
  // How many raw pages are stored from `first` on until one is refused.
  uint64_t fill_until_refused(uint64_t first) {
    uint64_t pages = 0;
    while (store(first + pages, test::random_page(pages)) == Status::kOk) ++pages;
    return pages;
  }
  void discard(uint64_t first, uint64_t pages) {
    pool.discard(tenant, first * kPageBytes, pages * kPageBytes);
  }
  // All objects that were displaced so far, freed or not.
  [[nodiscard]] uint64_t displaced() const {
    const PoolSnapshot now = pool.snapshot();
    return now.free_waiting_objects + now.freed_in_request + now.freed_in_background;
  }

  Gate gate;
  Pool pool;
  Tenant& tenant;
  OpenAtEnd open_at_end;
};

// Most objects that may wait for one Worker.
uint64_t waiting_bound(const PoolSnapshot& snapshot) {
  return snapshot.workers * (is_async() ? FreeQueues::kCapacity : FreeQueues::kBatch);
}

TEST_CASE("a discard of more small objects than may wait frees the rest and keeps every count") {
  constexpr uint64_t kPages = 2 * FreeQueues::kCapacity;
  HeldPool held(kPages * kPageBytes);
  held.fill(0, kPages, PageKind::kSameObject);
  const uint64_t used = held.pool.snapshot().mem_used_total;
  held.discard(0, kPages);
  const PoolSnapshot after = held.pool.snapshot();
  CHECK(after.tenants[0].stored_pages == 0);
  CHECK(after.tenants[0].compr_data_size == 0);
  CHECK(after.tenants[0].notify_free == kPages);
  CHECK(held.displaced() == kPages);
  CHECK(after.free_waiting_objects <= waiting_bound(after));
  CHECK(after.free_waiting_bytes == after.free_waiting_objects * kObjectAlignBytes);
  CHECK(after.freed_in_background == 0);
  if (is_async()) CHECK(after.free_waiting_objects == FreeQueues::kCapacity);
  CHECK(after.mem_used_total <= used);
  held.gate.open();
  await("all to be freed", [&] { return held.pool.snapshot().pool_total_size == 0; });
  const PoolSnapshot end = held.pool.snapshot();
  CHECK(end.free_waiting_objects == 0);
  CHECK(end.free_waiting_bytes == 0);
  CHECK(end.freed_in_background == after.free_waiting_objects);
  CHECK(held.displaced() == kPages);
  uint64_t batches = 0;
  for (const LatencySnapshot& latency : end.free_latency) batches += latency.count;
  CHECK(batches > 0);
  CHECK(batches <= kPages);
  held.pool.check_invariants(2);
}

TEST_CASE("the pool has a thread of its own when it frees in the background, else none") {
  HeldPool held(kMiB);
  if (is_async()) await("the thread to start", [&] { return held.gate.started() == 1; });
  held.fill(0, 100, PageKind::kRaw);
  held.discard(0, 100);
  CHECK(held.gate.started() == (is_async() ? 1 : 0));
}

TEST_CASE("objects that wait make way for pages before any is refused") {
  constexpr uint64_t kLimit = 16 * kMiB;
  constexpr uint64_t kHalf = kLimit / kPageBytes / 2 - 7;  // no multiple of 64
  for (const bool discard : {false, true}) {
    CAPTURE(discard);
    HeldPool held(64 * kMiB, kLimit);
    held.fill(0, kHalf, PageKind::kRaw);
    if (discard) {
      held.discard(10, kHalf - 10);
    } else {
      held.fill(0, kHalf, PageKind::kSame);
    }
    CHECK(held.pool.snapshot().free_waiting_objects > 0);
    const uint64_t stored = held.fill_until_refused(2 * kHalf);
    CHECK((stored + 10) * kPageBytes > kLimit * 95 / 100);
    CHECK(held.pool.snapshot().free_waiting_objects == 0);
    CHECK(held.pool.snapshot().mem_used_max <= kLimit);
  }
}

TEST_CASE(
    "in a full pool trimmed pages can be stored again at once, one by one and many together") {
  constexpr uint64_t kLimit = 16 * kMiB;
  HeldPool probe(64 * kMiB, kLimit);
  const uint64_t most = probe.fill_until_refused(0);
  HeldPool held(64 * kMiB, kLimit);
  // So close to the limit that little else fits, but never refused.
  const uint64_t pages = most - 16;
  held.fill(0, pages, PageKind::kRaw);
  std::vector<Page> content(64);
  uint64_t seed = 0;
  uint64_t first = 0;  // the pages that are stored are those from here on
  for (const uint64_t run : {1, 2, 64, 16, 1, 64, 63, 7}) {
    CAPTURE(run);
    for (int round = 0; round < 40; ++round) {
      held.discard(first, run);
      for (uint64_t i = 0; i < run; ++i) content[i] = test::random_page(++seed);
      REQUIRE(held.store(first + pages, std::as_bytes(std::span(content).first(run))) ==
              Status::kOk);
      // Overwrites too.
      REQUIRE(held.store(first + run, std::as_bytes(std::span(content).first(run))) == Status::kOk);
      first += run;
    }
  }
  CHECK(held.pool.snapshot().tenants[0].pool_limit_hit == 0);
  CHECK(held.pool.snapshot().mem_used_total <= kLimit);
  held.gate.open();
  held.pool.check_invariants(2);
}

// A codec that lets the first page of each thread wait until so many threads have come, so that
// each of them has a Worker.
class MeetingCodec final : public Codec {
 public:
  explicit MeetingCodec(ptrdiff_t threads) : barrier_(threads) {}
  [[nodiscard]] Encoding encoding() const override { return codec_->encoding(); }
  [[nodiscard]] std::string name() const override { return codec_->name(); }
  [[nodiscard]] std::unique_ptr<CodecContext> make_context() const override {
    return std::make_unique<Context>(*this);
  }
  void begin() { meeting_ = true; }
  void end() { meeting_ = false; }

 private:
  class Context final : public CodecContext {
   public:
    explicit Context(const MeetingCodec& codec)
        : codec_(codec), context_(codec.codec_->make_context()) {}
    size_t compress(std::span<const std::byte> in, std::span<std::byte> out) noexcept override {
      thread_local bool met = false;
      if (codec_.meeting_ && !met) {
        met = true;
        codec_.barrier_.arrive_and_wait();
      }
      return context_->compress(in, out);
    }
    bool decompress(std::span<const std::byte> in, std::span<std::byte> out) noexcept override {
      return context_->decompress(in, out);
    }

   private:
    const MeetingCodec& codec_;
    const std::unique_ptr<CodecContext> context_;
  };

  const std::shared_ptr<const Codec> codec_ = parse_codec("lz4");
  mutable std::barrier<> barrier_;
  std::atomic<bool> meeting_{false};
};

// Leaves `each` raw pages' objects waiting for each of so many Workers.
struct ManyWorkers {
  static constexpr uint64_t kWorkers = test::kUnderTsan ? 12 : 48;
  static constexpr uint64_t kEach = 24;
  static constexpr uint64_t kLimit = 32 * kMiB;
  static constexpr uint64_t kDeviceBytes = 64 * kMiB;

  ManyWorkers()
      : codec(std::make_shared<MeetingCodec>(kWorkers)),
        pool(options(), kDeviceBytes),
        tenant(pool.add_tenant("", kDeviceBytes)),
        open_at_end(gate) {
    std::vector<Page> pages(kEach);
    for (uint64_t i = 0; i < kEach; ++i) pages[i] = test::random_page(i);
    for (uint64_t t = 0; t < kWorkers; ++t) {
      REQUIRE(pool.store(tenant, t * kEach * kPageBytes, std::as_bytes(std::span(pages))) ==
              Status::kOk);
    }
    const std::vector<Page> small(kEach, test::stamped_page(1, 1));
    codec->begin();
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kWorkers; ++t) {
      threads.emplace_back([&, t] {
        CSWAP_CHECK(pool.store(tenant, t * kEach * kPageBytes, std::as_bytes(std::span(small))) ==
                    Status::kOk);
      });
    }
    for (auto& thread : threads) thread.join();
    codec->end();
  }

  PoolOptions options() {
    PoolOptions options = gate.options(kLimit);
    options.codec = codec;
    return options;
  }

  Gate gate;
  const std::shared_ptr<MeetingCodec> codec;
  Pool pool;
  Tenant& tenant;
  OpenAtEnd open_at_end;
};

TEST_CASE("what waits for many workers is all freed by a drain") {
  ManyWorkers many;
  const PoolSnapshot before = many.pool.snapshot();
  CHECK(before.workers >= ManyWorkers::kWorkers);
  CHECK(before.free_waiting_objects == ManyWorkers::kWorkers * ManyWorkers::kEach);
  CHECK(before.free_waiting_bytes == before.free_waiting_objects * kPageBytes);
  many.gate.open();
  many.pool.drain_free_queues();
  const PoolSnapshot after = many.pool.snapshot();
  CHECK(after.free_waiting_objects == 0);
  CHECK(after.free_waiting_bytes == 0);
  CHECK(after.freed_in_request + after.freed_in_background == before.free_waiting_objects);
  CHECK(after.slot_cache_bytes == 0);
  many.pool.check_invariants(2);
}

TEST_CASE("what waits for many workers makes way for the pages of one") {
  ManyWorkers many;
  uint64_t pages = 0;
  const uint64_t first = ManyWorkers::kWorkers * ManyWorkers::kEach;
  while (many.pool.store(many.tenant, (first + pages) * kPageBytes, test::random_page(pages)) ==
         Status::kOk) {
    ++pages;
  }
  const PoolSnapshot full = many.pool.snapshot();
  CHECK(full.free_waiting_objects == 0);
  CHECK(pages * kPageBytes + full.tenants[0].compr_data_size % kPageBytes >
        ManyWorkers::kLimit * 9 / 10);
  CHECK(full.tenants[0].compr_data_size > ManyWorkers::kLimit * 94 / 100);
}

TEST_CASE("a pool that ends while much waits leaves nothing behind") {
  for (int i = 0; i < 8; ++i) {
    ManyWorkers many;  // the gate opens and the pool ends at once
    CHECK(many.pool.snapshot().free_waiting_objects > 0);
  }
}

TEST_CASE("a drain empties the pool after a discard and may be called by several at once") {
  constexpr uint64_t kPages = 16 * kMiB / kPageBytes;
  Pool pool(options_for("lz4"), 16 * kMiB);
  Tenant& tenant = pool.add_tenant("", 16 * kMiB);
  for (int round = 0; round < 20; ++round) {
    for (uint64_t i = 0; i < kPages; i += 1 + round % 3) {
      REQUIRE(pool.store(tenant, i * kPageBytes, test::stamped_page(i, 1)) == Status::kOk);
    }
    pool.discard(tenant, 0, 16 * kMiB);
    std::vector<std::thread> threads;
    for (int t = 0; t < round % 4; ++t) {
      threads.emplace_back([&] { pool.drain_free_queues(); });
    }
    pool.drain_free_queues();
    const PoolSnapshot drained = pool.snapshot();
    for (auto& thread : threads) thread.join();
    REQUIRE(drained.free_waiting_objects == 0);
    REQUIRE(drained.pool_total_size == 0);
    REQUIRE(drained.mem_used_total == drained.metadata_size);
    pool.check_invariants(2);
  }
}

TEST_CASE("memory of a discarded device goes back to the system by itself") {
  constexpr uint64_t kBytes = (test::kUnderSanitizer ? 16 : 128) * kMiB;
  for (const bool small : {true, false}) {
    CAPTURE(small);
    Pool pool(options_for("lz4"), kBytes);
    Tenant& tenant = pool.add_tenant("", kBytes);
    (void)test::corpus_pages();
    const uint64_t before = test::own_resident_bytes();
    for (uint64_t i = 0; i < kBytes / kPageBytes; ++i) {
      const Page page = small ? page_of(PageKind::kSameObject, i)
                              : test::corpus_pages()[i % test::corpus_pages().size()];
      REQUIRE(pool.store(tenant, i * kPageBytes, page) == Status::kOk);
    }
    const uint64_t peak = pool.snapshot().mem_used_total;
    const auto start = std::chrono::steady_clock::now();
    pool.discard(tenant, 0, kBytes);
    await("memory to be given back", [&] {
      const PoolSnapshot now = pool.snapshot();
      return now.pool_total_size == 0 && now.free_waiting_objects == 0 &&
             (test::kUnderSanitizer || test::own_resident_bytes() < before + peak / 10 + kMiB);
    });
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    MESSAGE((peak / 1024), " KiB were given back in ", taken.count(), " ms");
    CHECK(pool.snapshot().mem_used_total == pool.snapshot().metadata_size);
    CHECK(pool.snapshot().mem_used_max >= peak);
  }
}

TEST_CASE("places are held ready with alloc=global alone, and not for ever") {
  ModelDevice device(options_for("lz4"), 256);
  for (uint64_t i = 0; i < 256; ++i) {
    REQUIRE(device.make(i, static_cast<PageKind>(i % test::kPageKinds), i) == Status::kOk);
  }
  const bool global = device.pool().options().alloc == AllocMode::kGlobal;
  CHECK((device.pool().snapshot().slot_cache_bytes > 0) == global);
  CHECK(device.all_right());
  device.discard(0, 256 * kPageBytes);
  await("places to be given up", [&] {
    const PoolSnapshot now = device.pool().snapshot();
    return now.slot_cache_bytes == 0 && now.pool_total_size == 0;
  });
  CHECK(device.all_right());
}

}  // namespace
}  // namespace cswap
