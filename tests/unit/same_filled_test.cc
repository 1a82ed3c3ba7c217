#include "compress/same_filled.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "tests/support/corpus.h"

namespace cswap {
namespace {

test::Page page_of(uint64_t word) {
  test::Page page;
  fill_with_word(page, word);
  return page;
}

TEST_CASE("a page that repeats a word is same-filled with that word") {
  for (const uint64_t word : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{0xdeadbeef},
                              uint64_t{0x0102030405060708}, uint64_t{1} << 63}) {
    CHECK(repeated_word(page_of(word)) == word);
  }
}

TEST_CASE("one flipped bit anywhere makes a page not same-filled") {
  test::Page page = page_of(0x1111111111111111);
  for (size_t at = 0; at < page.size(); ++at) {
    const std::byte before = page[at];
    page[at] ^= std::byte{0x80};
    REQUIRE_FALSE(repeated_word(page).has_value());
    page[at] = before;
  }
  CHECK(repeated_word(page).has_value());
}

TEST_CASE("a repetition with a period other than eight bytes is no repeated word") {
  test::Page page;
  for (size_t i = 0; i < page.size(); ++i) page[i] = static_cast<std::byte>(i % 16);
  CHECK_FALSE(repeated_word(page).has_value());
  for (size_t i = 0; i < page.size(); ++i) page[i] = static_cast<std::byte>(i % 4);
  CHECK(repeated_word(page) == uint64_t{0x0302010003020100});
}

TEST_CASE("filling and detecting work at any address and touch nothing around") {
  std::vector<std::byte> buffer(kPageBytes + 32, std::byte{0xee});
  for (size_t shift = 0; shift < 16; ++shift) {
    std::fill(buffer.begin(), buffer.end(), std::byte{0xee});
    const auto page = std::span(buffer).subspan(shift, kPageBytes);
    fill_with_word(page, 0x0807060504030201);
    CHECK(repeated_word(page) == uint64_t{0x0807060504030201});
    CHECK((shift == 0 || buffer[shift - 1] == std::byte{0xee}));
    CHECK(buffer[shift + kPageBytes] == std::byte{0xee});
  }
}

TEST_CASE("a single word is a repeated word") {
  std::array<std::byte, 8> word{};
  word[3] = std::byte{7};
  CHECK(repeated_word(word) == uint64_t{7} << 24);
}

}  // namespace
}  // namespace cswap
