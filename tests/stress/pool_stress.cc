// Many threads on few pages: whole and partial writes, zeroes, trims and reads (O14). Every read
// must be what some of the writes left, and no page torn between two; what a thread writes to the
// page of its own must come back exactly. Afterwards nothing is left of what was used.
//
// usage: stress_pool CODEC [limit] [checksum]
//
// Each page is 8 parts of 512 bytes. A part is either zero or filled from its place and the stamp
// of the write: a generation, which is also what makes it compress well or not at all, and the
// range of parts that was written. A write covers whole parts and may span pages.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/support/model_device.h"
#include "tests/support/resident.h"

namespace {

using namespace cswap;
using cswap::test::Random;

constexpr uint64_t kThreads = 16;
constexpr uint64_t kSharedPages = 8;
constexpr uint64_t kPartBytes = 512;
constexpr uint64_t kPartsPerPage = kPageBytes / kPartBytes;
// Then one page for each thread, then pages of which each thread owns one part.
constexpr uint64_t kFirstOwnPart = (kSharedPages + kThreads) * kPartsPerPage;
constexpr uint64_t kPages = kSharedPages + kThreads + kThreads / kPartsPerPage;
constexpr uint64_t kSharedParts = kSharedPages * kPartsPerPage;
constexpr uint64_t kDeviceBytes = kPages * kPageBytes;

using Part = std::array<std::byte, kPartBytes>;

// Which write it was and which parts [from, to) it wrote; 0 is none.
struct Stamp {
  uint64_t bits = 0;
  Stamp() = default;
  explicit Stamp(const Part& part) { std::memcpy(&bits, part.data(), sizeof bits); }
  Stamp(uint64_t generation, uint64_t from, uint64_t to)
      : bits(generation << 16 | from << 8 | to) {}
  [[nodiscard]] uint64_t generation() const { return bits >> 16; }
  [[nodiscard]] bool covers(uint64_t part) const {
    return (bits >> 8 & 0xff) <= part && part < (bits & 0xff);
  }
};
static_assert(kPages * kPartsPerPage < 256);

Part part_of(uint64_t part, Stamp stamp) {
  Part content{};
  if (stamp.bits == 0) return content;
  Random random(stamp.bits * 256 + part);
  uint64_t word = random();
  for (size_t at = 0; at < kPartBytes; at += sizeof word) {
    // By generation: random, a repeated word, or something between.
    const uint64_t kind = stamp.generation() % 3;
    if (kind == 0 || (kind == 1 && at % 64 == 0)) word = random();
    std::memcpy(content.data() + at, &word, sizeof word);
  }
  std::memcpy(content.data(), &stamp.bits, sizeof stamp.bits);
  return content;
}

class Hammer {
 public:
  Hammer(const PoolOptions& options, uint64_t requests, uint64_t seed)
      : pool_(options, kDeviceBytes),
        tenant_(pool_.add_tenant("", kDeviceBytes)),
        requests_(requests),
        seed_(seed) {}

  void run() {
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([this, t] { hammer(t); });
    }
    for (auto& thread : threads) thread.join();
    pool_.check_invariants(2);
    check_read(0, kSharedParts);
    pool_.discard(tenant_, 0, kDeviceBytes);
    pool_.check_invariants(2);
    const PoolSnapshot after = pool_.snapshot();
    CSWAP_CHECK(after.tenants[0].stored_pages == 0 && after.tenants[0].compr_data_size == 0);
    CSWAP_CHECK(after.tenants[0].same_pages == 0 && after.tenants[0].huge_pages == 0);
    CSWAP_CHECK(after.pool_total_size == 0);
    CSWAP_CHECK(after.tenants[0].decompress_fail == 0);
    CSWAP_CHECK(after.tenants[0].pool_limit_hit == refused_.load());
    std::printf("%llu writes, %llu refused, %llu reads, workers %llu, peak %llu bytes\n",
                static_cast<unsigned long long>(writes_.load()),
                static_cast<unsigned long long>(refused_.load()),
                static_cast<unsigned long long>(reads_.load()),
                static_cast<unsigned long long>(after.workers),
                static_cast<unsigned long long>(after.mem_used_max));
    CSWAP_CHECK(writes_.load() > 0 && reads_.load() > 0);
  }

 private:
  void hammer(uint64_t thread) {
    Random random(seed_ + thread);
    std::array<Part, kPartsPerPage> own{};
    Part own_part{};
    for (uint64_t i = 1; i <= requests_; ++i) {
      const uint64_t generation = i * kThreads + thread;
      if (random.below(8) == 0) {
        use_own_page(thread, random, generation, own);
        continue;
      }
      if (random.below(4) == 0) {
        use_own_part(kFirstOwnPart + thread, random, generation, own_part);
        continue;
      }
      uint64_t from = random.below(kSharedParts);
      const uint64_t most = random.below(4) == 0 ? 3 * kPartsPerPage : kPartsPerPage;
      uint64_t to = std::min(kSharedParts, from + 1 + random.below(most));
      if (random.below(3) == 0) {  // whole pages
        from -= from % kPartsPerPage;
        to = std::min(kSharedParts, from + (1 + random.below(2)) * kPartsPerPage);
      }
      switch (random.below(8)) {
        case 0:
          pool_.discard(tenant_, from * kPartBytes, (to - from) * kPartBytes);
          break;
        case 1:
          (void)counted(pool_.zero(tenant_, from * kPartBytes, (to - from) * kPartBytes));
          break;
        case 2:
        case 3:
        case 4:
          check_read(from, to);
          break;
        default:
          (void)write(from, to, generation);
      }
    }
  }

  bool write(uint64_t from, uint64_t to, uint64_t generation) {
    std::vector<Part> data;
    for (uint64_t part = from; part < to; ++part) {
      data.push_back(part_of(part, Stamp(generation, from, to)));
    }
    return counted(pool_.store(tenant_, from * kPartBytes, std::as_bytes(std::span(data))));
  }

  // No other thread writes this page, so it holds what was last written with success.
  void use_own_page(uint64_t thread, Random& random, uint64_t generation,
                    std::array<Part, kPartsPerPage>& own) {
    const uint64_t first = (kSharedPages + thread) * kPartsPerPage;
    const uint64_t from = random.below(2) == 0 ? 0 : random.below(kPartsPerPage);
    const uint64_t to = from + 1 + random.below(kPartsPerPage - from);
    if (random.below(8) == 0) {
      pool_.discard(tenant_, first * kPartBytes, kPageBytes);
      own = {};
    } else if (write(first + from, first + to, generation)) {
      for (uint64_t part = from; part < to; ++part) {
        own[part] = part_of(first + part, Stamp(generation, first + from, first + to));
      }
    }
    std::array<Part, kPartsPerPage> read;
    CSWAP_CHECK(pool_.load(tenant_, first * kPartBytes, std::as_writable_bytes(std::span(read))) ==
                Status::kOk);
    CSWAP_CHECK(read == own);
  }

  // Others write the rest of its page all the time: none of these may take the part back with it.
  void use_own_part(uint64_t part, Random& random, uint64_t generation, Part& own) {
    // One of the pages is always stored raw, so that its words differ in nothing but the place, and
    // a place that has been freed and taken again gives the same word for other bytes.
    const bool raw = part < kFirstOwnPart + kPartsPerPage;
    check_own_part(part, own);  // what was right once may have been taken back since
    if (raw) generation *= 3;
    if (!raw && random.below(4) == 0) {
      if (counted(pool_.zero(tenant_, part * kPartBytes, kPartBytes))) own = {};
    } else if (write(part, part + 1, generation)) {
      own = part_of(part, Stamp(generation, part, part + 1));
    }
    check_own_part(part, own);
  }

  void check_own_part(uint64_t part, const Part& own) {
    Part read;
    CSWAP_CHECK(pool_.load(tenant_, part * kPartBytes, read) == Status::kOk);
    CSWAP_CHECK(read == own);
  }

  bool counted(Status status) {
    CSWAP_CHECK(status == Status::kOk ||
                (status == Status::kNoSpace && pool_.options().mem_limit_bytes > 0));
    (status == Status::kOk ? writes_ : refused_).fetch_add(1, std::memory_order_relaxed);
    return status == Status::kOk;
  }

  void check_read(uint64_t from, uint64_t to) {
    std::vector<Part> read(to - from);
    CSWAP_CHECK(pool_.load(tenant_, from * kPartBytes, std::as_writable_bytes(std::span(read))) ==
                Status::kOk);
    for (uint64_t part = from; part < to; ++part) {
      const Stamp stamp(read[part - from]);
      CSWAP_CHECK(stamp.bits == 0 || stamp.covers(part));
      CSWAP_CHECK(stamp.generation() < (requests_ + 1) * kThreads);
      CSWAP_CHECK(read[part - from] == part_of(part, stamp));
      const uint64_t page_end = std::min(to, (part / kPartsPerPage + 1) * kPartsPerPage);
      for (uint64_t other = part + 1; other < page_end; ++other) {
        check_not_torn(part, stamp, other, Stamp(read[other - from]));
      }
    }
    reads_.fetch_add(1, std::memory_order_relaxed);
  }

  // Of two writes that both wrote two parts of a page, only the later can be seen in either.
  static void check_not_torn(uint64_t part, Stamp stamp, uint64_t other, Stamp other_stamp) {
    if (stamp.bits == 0 || other_stamp.bits == 0 || stamp.bits == other_stamp.bits) return;
    CSWAP_CHECK(!stamp.covers(other) || !other_stamp.covers(part));
  }

  Pool pool_;
  Tenant& tenant_;
  const uint64_t requests_;  // of each thread
  const uint64_t seed_;
  std::atomic<uint64_t> writes_{0};
  std::atomic<uint64_t> refused_{0};
  std::atomic<uint64_t> reads_{0};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CODEC [limit] [checksum]\n", argv[0]);
    return 2;
  }
  PoolOptions options = test::options_for(argv[1]);
  for (int i = 2; i < argc; ++i) {
    // Room for about half of the pages when they are random.
    if (argv[i] == std::string_view("limit")) options.mem_limit_bytes = kMinMemLimitBytes;
    if (argv[i] == std::string_view("checksum")) options.checksum = true;
  }
  const uint64_t requests = test::kUnderTsan ? 1'000 : test::kUnderAsan ? 4'000 : 20'000;
  Hammer(options, requests, test::test_seed()).run();
  return 0;
}
