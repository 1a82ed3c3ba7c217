#include "core/page_codec.h"

#include <doctest/doctest.h>

#include "compress/same_filled.h"
#include "tests/support/model_device.h"

namespace cswap {
namespace {

using test::options_for;
using test::Page;
using test::PageKind;
using State = SlotWord::State;

// A page as a store would keep it: its word, and an object that ends where its block ends.
struct Stored {
  Stored(const PoolOptions& options, PageIndex page, const Page& content)
      : worker(std::make_unique<Worker>(0, *options.codec)) {
    const EncodedPage encoded =
        encode_page(options, (*worker).codec(), content, (*worker).scratch().object);
    word = encoded.word;
    if (!encoded.needs_object()) return;
    object.resize(stored_bytes(options, encoded.bytes.size()));
    write_object(options, page, encoded.bytes, object.data());
    word = SlotWord::object(encoded.state, encoded.encoding, 0,
                            static_cast<uint32_t>(encoded.bytes.size()), {64});
  }
  std::unique_ptr<Worker> worker;
  SlotWord word;
  std::vector<std::byte> object;
};

bool decodes(const PoolOptions& options, Stored& stored, PageIndex page, const Page& expected) {
  Page out;
  out.fill(std::byte{0x77});
  return decode_page(options, stored.worker->codec(), stored.word, stored.object, page, out) &&
         out == expected;
}

TEST_CASE("every kind of page is kept as that kind and restored") {
  for (const std::string codec : {"lz4", "zstd"}) {
    for (const bool checksum : {false, true}) {
      const PoolOptions options = options_for(codec, checksum);
      for (size_t kind = 1; kind < test::kPageKinds; ++kind) {
        const Page page = page_of(static_cast<PageKind>(kind), 9);
        Stored stored(options, {5}, page);
        CHECK(decodes(options, stored, {5}, page));
        switch (static_cast<PageKind>(kind)) {
          case PageKind::kZero:
          case PageKind::kSame:
            CHECK(stored.word.state() == State::kSame);
            break;
          case PageKind::kSameObject:
            CHECK(stored.word.state() == State::kSameObject);
            CHECK(stored.word.object_bytes() == 8);
            break;
          case PageKind::kCompressed:
            CHECK(stored.word.encoding() == options.codec->encoding());
            CHECK(stored.word.object_bytes() <= kMaxCompressedBytes);
            break;
          default:
            CHECK(stored.word.is_raw());
            CHECK(stored.word.object_bytes() == kPageBytes);
        }
      }
    }
  }
}

// O16 at the pool's own threshold: the last compressed length that is used, and raw after it.
TEST_CASE("pages whose compressed length hugs the raw cut-off are restored on either side of it") {
  const PoolOptions options = options_for("lz4");
  std::array<int, 2> seen{};
  for (size_t entropy = kPageBytes - 80; entropy <= kPageBytes; ++entropy) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      Page page = test::random_page(seed);
      std::fill(page.begin() + static_cast<ptrdiff_t>(entropy), page.end(), std::byte{0});
      Stored stored(options, {1}, page);
      REQUIRE(decodes(options, stored, {1}, page));
      REQUIRE((stored.word.is_raw() || stored.word.object_bytes() <= kMaxCompressedBytes));
      ++seen[stored.word.is_raw()];
    }
  }
  CHECK(seen[0] > 0);
  CHECK(seen[1] > 0);
}

TEST_CASE("with a checksum each flipped bit and each lost byte is noticed") {
  for (const std::string codec : {"lz4", "zstd"}) {
    const PoolOptions options = options_for(codec, true);
    for (const PageKind kind : {PageKind::kSameObject, PageKind::kCompressed, PageKind::kRaw}) {
      const Page page = page_of(kind, 3);
      Stored stored(options, {5}, page);
      for (size_t at = 0; at < stored.object.size(); ++at) {
        const auto mask = static_cast<std::byte>(1 << at % 8);
        stored.object[at] ^= mask;
        REQUIRE_FALSE(decodes(options, stored, {5}, page));
        stored.object[at] ^= mask;
      }
      CHECK(decodes(options, stored, {5}, page));
      // The same object for another page.
      CHECK_FALSE(decodes(options, stored, {6}, page));
      while (!stored.object.empty()) {
        stored.object.pop_back();
        stored.object.shrink_to_fit();
        REQUIRE_FALSE(decodes(options, stored, {5}, page));
      }
    }
  }
}

TEST_CASE("a word that no encoder makes is refused") {
  for (const bool checksum : {false, true}) {
    const PoolOptions options = options_for("lz4", checksum);
    const Page page = test::stamped_page(1, 1);
    Stored stored(options, {5}, page);
    const auto refused = [&](SlotWord word) {
      Page out;
      return !decode_page(options, stored.worker->codec(), word, stored.object, {5}, out);
    };
    const auto length = static_cast<uint32_t>(stored.word.object_bytes());
    const auto word = [&](State state, int encoding, uint32_t bytes) {
      return SlotWord::object(state, static_cast<Encoding>(encoding), 0, bytes, {64});
    };
    CHECK(refused(word(State::kObject, 1, (1u << 13) - 1)));
    CHECK(refused(word(State::kObject, 0, kPageBytes)));
    CHECK(refused(word(State::kObject, 2, length)));
    CHECK(refused(word(State::kObject, 3, length)));
    CHECK(refused(word(State::kObject, 1, 0)));
    CHECK(refused(word(State::kSameObject, 0, 7)));
    for (const uint64_t state : {4, 5, 6, 7}) {
      CHECK(refused(SlotWord((stored.word.bits() & ~uint64_t{0} >> 3) | state << 61)));
    }
  }
}

}  // namespace
}  // namespace cswap
