// Every state of a page followed by every other, inside one request (O13) and by writes of a part
// of a page (O15).
#include <doctest/doctest.h>

#include <set>

#include "tests/support/model_device.h"
#include "tests/support/resident.h"

namespace cswap {
namespace {

using test::ModelDevice;
using test::options_for;
using test::Page;
using test::PageKind;

constexpr uint64_t kRun = 4;
constexpr uint64_t kFirst = 2;  // neighbours before and after
constexpr uint64_t kDevicePages = kRun + 2 * kFirst;

std::array<PageKind, kRun> ordering_of(uint64_t number) {
  std::array<PageKind, kRun> kinds;
  for (PageKind& kind : kinds) {
    kind = static_cast<PageKind>(number % test::kPageKinds);
    number /= test::kPageKinds;
  }
  return kinds;
}

// O13. A cursor that stops at one kind of page shifts all that follow it.
TEST_CASE("one request over every ordering of four page kinds reads and writes each in its place") {
  constexpr uint64_t kOrderings =
      test::kPageKinds * test::kPageKinds * test::kPageKinds * test::kPageKinds;
  for (const std::string& codec : test::codecs_to_try({"lz4", "zstd"})) {
    ModelDevice device(options_for(codec), kDevicePages);
    for (uint64_t number = 0; number < kOrderings; ++number) {
      CAPTURE(codec);
      CAPTURE(number);
      const auto kinds = ordering_of(number);
      for (uint64_t i = 0; i < kDevicePages; ++i) {
        REQUIRE(device.store_page(i, test::stamped_page(i, number)) == Status::kOk);
      }
      for (uint64_t i = 0; i < kRun; ++i) {
        REQUIRE(device.make(kFirst + i, kinds[i], number + i) == Status::kOk);
      }
      REQUIRE(device.matches());
      for (const uint64_t shift : {0, 512}) {
        REQUIRE(device.matches(kFirst * kPageBytes + shift, kRun * kPageBytes));
      }
      std::vector<std::byte> data;
      for (uint64_t i = 0; i < kRun; ++i) {
        const Page page = page_of(kinds[i], number + 100 + i);
        data.insert(data.end(), page.begin(), page.end());
      }
      for (const uint64_t shift : {0, 512}) {
        REQUIRE(device.store(kFirst * kPageBytes + shift, data) == Status::kOk);
        REQUIRE(device.matches());
      }
      REQUIRE(device.gauges() == device.expected());
    }
    CHECK(device.all_right());
  }
}

// O15. The state that a partial write leaves is that of the bytes it leaves.
class PartialWrites {
 public:
  explicit PartialWrites(const PoolOptions& options) : device_(options, 3) {}

  void run(PageKind start, PageKind result, uint64_t from, uint64_t length) {
    // The range takes the result's bytes and the rest the start's, or the rest is as it is to be.
    for (const bool rest_is_result : {false, true}) {
      const auto after = test::bytes_of(std::array{page_of(result, 7), page_of(result, 7)});
      auto before = test::bytes_of(std::array{page_of(start, 8), page_of(start, 9)});
      if (rest_is_result) {
        std::copy_n(after.begin(), from, before.begin());
        std::copy(after.begin() + static_cast<ptrdiff_t>(from + length), after.end(),
                  before.begin() + static_cast<ptrdiff_t>(from + length));
      }
      device_.discard(0, 3 * kPageBytes);
      const bool absent = start == PageKind::kAbsent && !rest_is_result;
      if (!absent) REQUIRE(device_.store(kPageBytes, before) == Status::kOk);
      REQUIRE(device_.store_page(0, test::stamped_page(0, 1)) == Status::kOk);
      const PageKind kind_before = device_.kind(1);
      const test::Gauges gauges_before = device_.gauges();
      const std::span<const std::byte> data(after.data() + from, length);
      REQUIRE(device_.store(kPageBytes + from, data) == Status::kOk);
      REQUIRE(device_.matches());
      REQUIRE(device_.gauges() == device_.expected());
      const PageKind kind_after = device_.kind(1);
      seen_.insert({kind_before, kind_after});
      if (from + length <= kPageBytes) check_one_page_moved(gauges_before, kind_before, kind_after);
      REQUIRE(device_.zero(kPageBytes + from, length) == Status::kOk);
      REQUIRE(device_.matches());
      REQUIRE(device_.gauges() == device_.expected());
    }
  }

  [[nodiscard]] bool seen(PageKind from, PageKind to) const { return seen_.contains({from, to}); }
  [[nodiscard]] ModelDevice& device() { return device_; }

 private:
  void check_one_page_moved(const test::Gauges& before, PageKind from, PageKind to) {
    const test::Gauges after = device_.gauges();
    const auto is_same = [](PageKind kind) {
      return kind == PageKind::kZero || kind == PageKind::kSame || kind == PageKind::kSameObject;
    };
    REQUIRE(after.stored_pages - before.stored_pages == uint64_t{from == PageKind::kAbsent});
    REQUIRE(after.same_pages + is_same(from) == before.same_pages + is_same(to));
    REQUIRE(after.huge_pages + (from == PageKind::kRaw) ==
            before.huge_pages + (to == PageKind::kRaw));
  }

  ModelDevice device_;
  std::set<std::pair<PageKind, PageKind>> seen_;
};

TEST_CASE("a write of a part of a page takes it from every state to every other, alone") {
  for (const std::string& codec : test::codecs_to_try({"lz4", "zstd"})) {
    for (const bool checksum : {false, true}) {
      PartialWrites writes(options_for(codec, checksum));
      for (size_t start = 0; start < test::kPageKinds; ++start) {
        for (size_t result = 1; result < test::kPageKinds; ++result) {
          for (const uint64_t length : {1, 8, 511, 512, 4088, 4095}) {
            for (uint64_t from = 0; from < kPageBytes; from += 512) {
              writes.run(static_cast<PageKind>(start), static_cast<PageKind>(result), from, length);
            }
            // To the end of the page too.
            writes.run(static_cast<PageKind>(start), static_cast<PageKind>(result),
                       kPageBytes - length, length);
          }
        }
      }
      for (size_t from = 0; from < test::kPageKinds; ++from) {
        for (size_t to = 1; to < test::kPageKinds; ++to) {
          CAPTURE(from);
          CAPTURE(to);
          CHECK(writes.seen(static_cast<PageKind>(from), static_cast<PageKind>(to)));
        }
      }
      CHECK(writes.device().all_right());
    }
  }
}

}  // namespace
}  // namespace cswap
