// O16. A damaged object fails the pages it holds and nothing else: with a checksum always, without
// one at least without harm.
#include <doctest/doctest.h>

#include "tests/support/model_device.h"

namespace cswap {
namespace {

using test::ModelDevice;
using test::options_for;
using test::Page;
using test::PageKind;
using test::Random;

constexpr uint64_t kPages = 5;
constexpr uint64_t kDamaged = 2;

// A device whose page kDamaged is of `kind`, with others beside it.
struct Damage {
  Damage(const std::string& codec, bool checksum, PageKind kind)
      : device(options_for(codec, checksum), kPages) {
    for (uint64_t i = 0; i < kPages; ++i) {
      REQUIRE(device.store_page(i, test::stamped_page(i, 1)) == Status::kOk);
    }
    REQUIRE(device.make(kDamaged, kind, 7) == Status::kOk);
    object = device.pool().object_bytes_for_test(device.tenant(), {kDamaged});
    REQUIRE_FALSE(object.empty());
  }

  Status load(uint64_t offset, uint64_t length) {
    std::vector<std::byte> read(length);
    return device.pool().load(device.tenant(), offset, read);
  }
  Status load_damaged() { return load(kDamaged * kPageBytes, kPageBytes); }
  bool others_are_fine() {
    return device.matches(0, kDamaged * kPageBytes) &&
           device.matches((kDamaged + 1) * kPageBytes, (kPages - kDamaged - 1) * kPageBytes);
  }

  ModelDevice device;
  std::span<std::byte> object;
};

constexpr PageKind kObjectKinds[] = {PageKind::kSameObject, PageKind::kCompressed, PageKind::kRaw};

TEST_CASE("with a checksum a flip of any byte of an object fails its page and is counted") {
  for (const std::string codec : {"lz4", "zstd"}) {
    for (const PageKind kind : kObjectKinds) {
      Damage damage(codec, true, kind);
      // The checksum's own bytes follow the object's.
      const std::span stored(damage.object.data(), damage.object.size() + kChecksumBytes);
      uint64_t failures = 0;
      for (size_t at = 0; at < stored.size(); ++at) {
        stored[at] ^= std::byte{0x40};
        REQUIRE(damage.load_damaged() == Status::kDamaged);
        REQUIRE(damage.device.counts().decompress_fail == ++failures);
        stored[at] ^= std::byte{0x40};
      }
      CHECK(damage.load_damaged() == Status::kOk);
      CHECK(damage.device.all_right());
    }
  }
}

TEST_CASE("with a checksum an object cut at any length fails its page") {
  for (const PageKind kind : kObjectKinds) {
    Damage damage("lz4", true, kind);
    const std::vector<std::byte> whole(damage.object.begin(), damage.object.end());
    for (size_t length = 0; length < whole.size(); length += 1 + length / 16) {
      std::fill(damage.object.begin() + static_cast<ptrdiff_t>(length), damage.object.end(),
                std::byte{0});
      if (std::equal(whole.begin(), whole.end(), damage.object.begin())) continue;
      REQUIRE(damage.load_damaged() == Status::kDamaged);
      std::copy(whole.begin(), whole.end(), damage.object.begin());
    }
    CHECK(damage.device.all_right());
  }
}

TEST_CASE("a read over a damaged page fails, and reads beside it do not") {
  Damage damage("lz4", true, PageKind::kCompressed);
  damage.object[3] ^= std::byte{1};
  CHECK(damage.load(0, kPages * kPageBytes) == Status::kDamaged);
  CHECK(damage.load((kDamaged + 1) * kPageBytes - 1, 2) == Status::kDamaged);
  CHECK(damage.load(kDamaged * kPageBytes - 1, 2) == Status::kDamaged);
  CHECK(damage.load(kDamaged * kPageBytes - 1, 1) == Status::kOk);
  CHECK(damage.others_are_fine());
}

TEST_CASE("a write or zero of a part of a damaged page fails and changes nothing") {
  for (const PageKind kind : kObjectKinds) {
    Damage damage("lz4", true, kind);
    const test::Gauges before = damage.device.gauges();
    damage.object[0] ^= std::byte{1};
    const Page data = test::random_page(99);
    const uint64_t start = kDamaged * kPageBytes;
    CHECK(damage.device.store(start + 10, std::span(data).first(100)) == Status::kDamaged);
    CHECK(damage.device.zero(start + 10, 100) == Status::kDamaged);
    // As the first, and as the last page of a longer request.
    const auto longer = test::bytes_of(std::array{data, data, data});
    CHECK(damage.device.store(start + 1, std::span(longer).first(2 * kPageBytes)) ==
          Status::kDamaged);
    CHECK(damage.device.store(0, std::span(longer).first(start + 1)) == Status::kDamaged);
    CHECK(damage.device.zero(0, start + 1) == Status::kDamaged);
    CHECK(damage.device.counts().decompress_fail == 5);
    CHECK(damage.device.counts().pool_limit_hit == 0);
    // Page by page, those before the damaged one are stored.
    const bool whole = damage.device.pool().options().batch;
    CHECK(damage.device.gauges() == (whole ? before : damage.device.expected()));
    CHECK(damage.others_are_fine());
    damage.object[0] ^= std::byte{1};
    CHECK(damage.device.all_right());
  }
}

TEST_CASE("a damaged page can be overwritten whole, zeroed or discarded") {
  for (int way = 0; way < 3; ++way) {
    Damage damage("lz4", true, PageKind::kCompressed);
    damage.object[0] ^= std::byte{1};
    const uint64_t start = kDamaged * kPageBytes;
    if (way == 0) CHECK(damage.device.store_page(kDamaged, test::random_page(4)) == Status::kOk);
    if (way == 1) CHECK(damage.device.zero(start, kPageBytes) == Status::kOk);
    if (way == 2) damage.device.discard(start, kPageBytes);
    CHECK(damage.device.all_right());
  }
}

TEST_CASE("without a checksum any damage ends in an error or some page, and harms no other") {
  Random random(test::test_seed());
  for (const std::string codec : {"lz4", "zstd", "zstd:-5"}) {
    for (const PageKind kind : kObjectKinds) {
      Damage damage(codec, false, kind);
      const std::vector<std::byte> whole(damage.object.begin(), damage.object.end());
      for (int i = 0; i < 2000; ++i) {
        for (uint64_t n = 1 + random.below(4); n > 0; --n) {
          damage.object[random.below(whole.size())] = static_cast<std::byte>(random());
        }
        const Status status = damage.load_damaged();
        REQUIRE((status == Status::kOk || status == Status::kDamaged));
        std::copy(whole.begin(), whole.end(), damage.object.begin());
      }
      CHECK(damage.device.all_right());
    }
  }
}

}  // namespace
}  // namespace cswap
