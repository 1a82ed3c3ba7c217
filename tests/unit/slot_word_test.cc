#include "core/slot_word.h"

#include <doctest/doctest.h>

#include "core/size_class.h"
#include "tests/support/corpus.h"

namespace cswap {
namespace {

using State = SlotWord::State;

TEST_CASE("an empty word is all zero and reads as zeroes") {
  const SlotWord word;
  CHECK(word.bits() == 0);
  CHECK(word.state() == State::kEmpty);
  CHECK(word.is_empty());
  CHECK(word.is_zero());
  CHECK_FALSE(word.has_object());
  CHECK_FALSE(word.is_same());
  CHECK_FALSE(word.is_raw());
}

TEST_CASE("a fill that sign extension from bit 60 restores is kept in the word") {
  const uint64_t limit = uint64_t{1} << 60;
  for (const uint64_t fill :
       {uint64_t{0}, uint64_t{1}, limit - 1, ~uint64_t{0}, -limit, uint64_t{0x0f0f0f0f0f0f0f0f}}) {
    const auto word = SlotWord::same(fill);
    REQUIRE(word.has_value());
    CHECK(word->state() == State::kSame);
    CHECK(word->same_fill() == fill);
    CHECK(word->is_same());
    CHECK_FALSE(word->has_object());
    CHECK_FALSE(word->is_empty());
    CHECK(word->is_zero() == (fill == 0));
  }
}

TEST_CASE("a fill that needs more than 61 bits does not fit a word") {
  const uint64_t limit = uint64_t{1} << 60;
  for (const uint64_t fill : {limit, -limit - 1, uint64_t{1} << 63, uint64_t{0x7fffffffffffffff},
                              uint64_t{0xabababababababab}}) {
    CHECK_FALSE(SlotWord::same(fill).has_value());
  }
}

TEST_CASE("each field of an object's word keeps its extremes and disturbs no other") {
  const std::array<uint64_t, 4> offsets = {0, kObjectAlignBytes, kMaxArenaBytes / 2,
                                           kMaxArenaBytes - kObjectAlignBytes};
  const std::array<uint32_t, 5> sizes = {0, 1, 8, kPageBytes, (1u << 13) - 1};
  for (const State state : {State::kObject, State::kSameObject}) {
    for (const Encoding encoding : {Encoding::kRaw, Encoding::kLz4, Encoding::kZstd}) {
      for (uint32_t order = 0; order < 16; ++order) {
        for (const uint32_t bytes : sizes) {
          for (const uint64_t at : offsets) {
            const SlotWord word = SlotWord::object(state, encoding, order, bytes, {at});
            REQUIRE(word.state() == state);
            REQUIRE(word.encoding() == encoding);
            REQUIRE(word.order() == order);
            REQUIRE(word.object_bytes() == bytes);
            REQUIRE(word.object_offset() == ArenaOffset{at});
            REQUIRE(word.has_object());
            REQUIRE(word.is_same() == (state == State::kSameObject));
            REQUIRE(word.is_raw() == (state == State::kObject && encoding == Encoding::kRaw));
            REQUIRE_FALSE(word.is_zero());
            REQUIRE(SlotWord(word.bits()) == word);
          }
        }
      }
    }
  }
}

TEST_CASE("random fills are either restored exactly or refused") {
  test::Random random(test::test_seed());
  int kept = 0;
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t fill = random() >> random.below(64);
    const auto word = SlotWord::same(fill);
    if (!word) continue;
    ++kept;
    REQUIRE(word->same_fill() == fill);
  }
  CHECK(kept > 10'000);
}

TEST_CASE("a word has room for the largest object, order and arena") {
  static_assert(kMaxObjectBytes - kChecksumBytes < (1u << 13));
  static_assert(kOrders <= 16);
  static_assert(kMaxArenaBytes == uint64_t{1} << 46, "4 times the largest device");
}

}  // namespace
}  // namespace cswap
