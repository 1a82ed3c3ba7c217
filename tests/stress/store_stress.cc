// Threads that allocate and free in one object store, each verifying its own objects, and handing
// some to the next thread to free: as a page stored by one request is freed by another.
//
// usage: stress_store [limit]
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "core/object_store.h"
#include "tests/support/corpus.h"
#include "tests/support/resident.h"

namespace {

using namespace cswap;
using cswap::test::Random;

constexpr uint64_t kThreads = 8;
constexpr uint64_t kArenaBytes = uint64_t{1} << 30;

struct Object {
  ArenaOffset at;
  uint32_t bytes;
  unsigned char fill;
};

class Hammer {
 public:
  Hammer(uint64_t limit, uint64_t steps, uint64_t seed)
      : budget_(limit, 90), store_(kArenaBytes, budget_), steps_(steps), seed_(seed) {}

  void run() {
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) threads.emplace_back([this, t] { hammer(t); });
    for (auto& thread : threads) thread.join();
    store_.check_invariants(2);
    for (Mailbox& mailbox : mailboxes_) {
      for (const Object& object : mailbox.objects) release(object);
    }
    CSWAP_CHECK(store_.live_bytes() == 0);
    store_.release_unused_pages();
    store_.check_invariants(2);
    CSWAP_CHECK(store_.resident_bytes() == 0);
    CSWAP_CHECK(budget_.used_bytes() == store_.metadata_bytes());
    std::printf("%llu allocated, %llu refused, peak %llu bytes\n",
                static_cast<unsigned long long>(allocated_.load()),
                static_cast<unsigned long long>(refused_.load()),
                static_cast<unsigned long long>(budget_.used_max_bytes()));
    CSWAP_CHECK((budget_.limit_bytes() == 0) == (refused_.load() == 0));
    CSWAP_CHECK(budget_.limit_bytes() == 0 ||
                budget_.used_max_bytes() <= budget_.limit_bytes() + store_.metadata_bytes());
  }

 private:
  struct Mailbox {
    std::mutex lock;
    std::vector<Object> objects;
  };

  void hammer(uint64_t thread) {
    Random random(seed_ + thread);
    ObjectStore::Hints hints{};
    std::vector<Object> own;
    for (uint64_t i = 0; i < steps_; ++i) {
      // Few classes for a while, then others, so that threads meet in clusters and these change.
      const uint64_t around = i / 2000 % 4 * 1000;
      const bool grow = own.size() < 400 && random.below(100) < (i / 1000 % 2 == 0 ? 70u : 40u);
      if (grow || own.empty()) {
        const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(
            kMaxObjectBytes, 1 + around + random.below(random.below(8) == 0 ? 3000 : 40)));
        Object object{{}, bytes, static_cast<unsigned char>(random())};
        const auto purpose =
            random.below(2) == 0 ? MemoryBudget::For::kNewPage : MemoryBudget::For::kGrowth;
        if (!store_.allocate(hints, bytes, purpose, &object.at)) {
          refused_.fetch_add(1, std::memory_order_relaxed);
          continue;
        }
        allocated_.fetch_add(1, std::memory_order_relaxed);
        std::memset(store_.bytes(object.at), object.fill, bytes);
        own.push_back(object);
      } else {
        const size_t pick = random.below(own.size());
        const Object object = own[pick];
        own[pick] = own.back();
        own.pop_back();
        random.below(4) == 0 ? send(thread, object) : release(object);
      }
      if (i % 64 == 0) receive(thread);
    }
    for (const Object& object : own) release(object);
    receive(thread);
  }

  void send(uint64_t thread, const Object& object) {
    Mailbox& mailbox = mailboxes_[(thread + 1) % kThreads];
    const std::lock_guard guard(mailbox.lock);
    mailbox.objects.push_back(object);
  }

  void receive(uint64_t thread) {
    std::vector<Object> objects;
    {
      const std::lock_guard guard(mailboxes_[thread].lock);
      objects.swap(mailboxes_[thread].objects);
    }
    for (const Object& object : objects) release(object);
  }

  void release(const Object& object) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(store_.bytes(object.at));
    CSWAP_CHECK(bytes[0] == object.fill);
    CSWAP_CHECK(std::memcmp(bytes, bytes + 1, object.bytes - 1) == 0);
    store_.free({&object.at, 1});
  }

  MemoryBudget budget_;
  ObjectStore store_;
  const uint64_t steps_;
  const uint64_t seed_;
  std::array<Mailbox, kThreads> mailboxes_;
  std::atomic<uint64_t> allocated_{0};
  std::atomic<uint64_t> refused_{0};
};

}  // namespace

int main(int argc, char** argv) {
  const bool limited = argc > 1 && argv[1] == std::string_view("limit");
  uint64_t steps = test::kUnderTsan ? 20'000 : test::kUnderAsan ? 50'000 : 300'000;
  if (limited) steps /= 4;  // a refusal searches long
  Hammer(limited ? uint64_t{1} << 20 : 0, steps, test::test_seed()).run();
  return 0;
}
