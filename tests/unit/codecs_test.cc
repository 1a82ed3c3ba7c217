#include "compress/codecs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "core/page_codec.h"
#include "tests/support/corpus.h"
#include "tests/support/resident.h"

namespace cswap {
namespace {

constexpr std::byte kGuard{0xa5};

// A buffer that knows when its surroundings were written. Under ASan it ends where the heap block
// ends, so reading beyond is seen too.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t bytes) : bytes_(kGuardBytes + bytes, kGuard) {}
  [[nodiscard]] std::span<std::byte> span() { return std::span(bytes_).subspan(kGuardBytes); }
  [[nodiscard]] bool intact() const {
    return std::all_of(bytes_.begin(), bytes_.begin() + kGuardBytes,
                       [](std::byte b) { return b == kGuard; });
  }

 private:
  static constexpr size_t kGuardBytes = 64;
  std::vector<std::byte> bytes_;
};

// A page of which the first `random_bytes` do not compress and the rest is zero.
test::Page page_with_entropy(size_t random_bytes, uint64_t seed) {
  test::Page page = test::random_page(seed);
  std::fill(page.begin() + static_cast<ptrdiff_t>(random_bytes), page.end(), std::byte{0});
  return page;
}

// Compresses into `room` bytes and, when it fits, checks that the exact length restores the page
// and that no other length does. Returns the length.
size_t round_trip(CodecContext& codec, const test::Page& page, size_t room) {
  GuardedBuffer out(room);
  const size_t length = codec.compress(page, out.span());
  REQUIRE(out.intact());
  REQUIRE(length <= room);
  if (length == 0) return 0;
  // A copy of exactly that length: nothing of the stream lies beyond it.
  const std::vector<std::byte> stored(out.span().begin(),
                                      out.span().begin() + static_cast<ptrdiff_t>(length));
  test::Page restored;
  restored.fill(kGuard);
  REQUIRE(codec.decompress(stored, restored));
  REQUIRE(restored == page);
  REQUIRE_FALSE(codec.decompress(std::span(stored).first(length - 1), restored));
  return length;
}

const std::array<const char*, 6> kNames = {"lz4",  "lz4:17",  "lz4:65537",
                                           "zstd", "zstd:-5", "zstd:19"};

TEST_CASE("the corpus comes back from every codec and shrinks") {
  for (const std::string name : kNames) {
    CAPTURE(name);
    const auto codec = parse_codec(name);
    const auto context = codec->make_context();
    uint64_t stored = 0;
    for (const test::Page& page : test::corpus_pages()) {
      const size_t length = round_trip(*context, page, kMaxCompressedBytes);
      stored += length == 0 ? kPageBytes : length;
    }
    // At the highest acceleration lz4 hardly looks for matches.
    const uint64_t percent = name == "lz4:65537" ? 100 : 75;
    CHECK(stored * 100 < test::corpus_pages().size() * kPageBytes * percent);
  }
}

TEST_CASE("room for exactly the result is enough for lz4, and less room is never overrun") {
  for (const std::string name : kNames) {
    CAPTURE(name);
    const auto codec = parse_codec(name);
    const auto context = codec->make_context();
    for (size_t i = 0; i < test::corpus_pages().size(); i += 37) {
      const test::Page& page = test::corpus_pages()[i];
      const size_t length = round_trip(*context, page, kPageBytes);
      if (length == 0) continue;
      if (codec->encoding() == Encoding::kLz4) CHECK(round_trip(*context, page, length) == length);
      for (const size_t room : {length - 1, length / 2, size_t{16}, size_t{1}, size_t{0}}) {
        CHECK(round_trip(*context, page, room) <= room);
      }
    }
  }
}

// O16. Zero from the compressor means "store raw" and the length is exact, whatever threshold the
// result comes near.
TEST_CASE("pages from zeros to random are stored with their exact length or raw") {
  test::Random random(test::test_seed());
  for (const std::string name : {"lz4", "zstd"}) {
    CAPTURE(name);
    const auto context = parse_codec(name)->make_context();
    int raw = 0;
    std::array<bool, 2> near_cut_off{};
    const int pages = test::kUnderSanitizer ? 5'000 : 50'000;
    for (int i = 0; i < pages; ++i) {
      // Half of all near the amount of entropy whose result is as long as the cut-off.
      const size_t entropy =
          i % 2 == 0 ? random.below(kPageBytes + 1) : kPageBytes - random.below(96);
      const test::Page page = page_with_entropy(entropy, random());
      std::array<std::byte, kMaxCompressedBytes> out;
      const size_t length = context->compress(page, out);
      REQUIRE(length <= out.size());
      raw += length == 0;
      if (length >= out.size() - 1) near_cut_off[length - (out.size() - 1)] = true;
      if (length == 0) continue;
      test::Page restored;
      REQUIRE(context->decompress(std::span(out).first(length), restored));
      REQUIRE(restored == page);
      REQUIRE_FALSE(context->decompress(std::span(out).first(length - 1), restored));
    }
    CHECK(raw > 0);
    // zstd gives up itself on a page that would not shrink by more than 66 bytes.
    if (name == "zstd") continue;
    CHECK(near_cut_off[0]);
    CHECK(near_cut_off[1]);
  }
}

TEST_CASE("any damage to a stream is refused or decodes inside the page") {
  test::Random random(test::test_seed());
  for (const std::string name : {"lz4", "zstd", "zstd:-5"}) {
    CAPTURE(name);
    const auto context = parse_codec(name)->make_context();
    for (size_t i = 0; i < test::corpus_pages().size(); i += 61) {
      std::array<std::byte, kMaxCompressedBytes> out;
      const size_t length = context->compress(test::corpus_pages()[i], out);
      for (int n = 0; n < 50 && length > 0; ++n) {
        std::vector<std::byte> damaged(out.begin(), out.begin() + static_cast<ptrdiff_t>(length));
        damaged[random.below(length)] ^= static_cast<std::byte>(1 + random.below(255));
        damaged.resize(1 + random.below(length));
        GuardedBuffer page(kPageBytes);
        (void)context->decompress(damaged, page.span());
        REQUIRE(page.intact());
      }
    }
    test::Page page;
    CHECK_FALSE(context->decompress({}, page));
  }
}

TEST_CASE("none never compresses and its encoding is raw") {
  const auto codec = parse_codec("none");
  CHECK(codec->encoding() == Encoding::kRaw);
  test::Page zeros{};
  std::array<std::byte, kPageBytes> out;
  CHECK(codec->make_context()->compress(zeros, out) == 0);
  CHECK_FALSE(codec->make_context()->decompress(out, zeros));
}

TEST_CASE("the accepted names of codecs are those that kAcceptedCodecs lists") {
  struct Row {
    const char* text;
    const char* name;
  };
  constexpr Row kAccepted[] = {
      {"lz4", "lz4:1"},       {"lz4:1", "lz4:1"},     {"lz4:65537", "lz4:65537"},
      {"lz4:17", "lz4:17"},   {"zstd", "zstd:3"},     {"zstd:1", "zstd:1"},
      {"zstd:22", "zstd:22"}, {"zstd:-5", "zstd:-5"}, {"zstd:-131072", "zstd:-131072"},
      {"zstd:19", "zstd:19"}, {"none", "none"},
  };
  for (const Row& row : kAccepted) {
    CAPTURE(std::string(row.text));
    const auto codec = parse_codec(row.text);
    REQUIRE(codec != nullptr);
    CHECK(codec->name() == row.name);
    // A name names the same codec again.
    CHECK(parse_codec(codec->name())->name() == row.name);
    CHECK(codec->make_context() != nullptr);
  }
}

TEST_CASE("every other text is no codec") {
  using namespace std::string_view_literals;
  constexpr std::string_view kRefused[] = {
      "",
      "lz",
      "LZ4",
      " lz4",
      "lz4 ",
      "lz4:",
      "lz4:0",
      "lz4:-1",
      "lz4:65538",
      "lz4:1x",
      "lz4:+1",
      "lz4: 1",
      "lz4:1:2",
      "lz4:99999999999",
      "zstd:",
      "zstd:0",
      "zstd:23",
      "zstd:-131073",
      "zstd:3.0",
      "zstd:0x3",
      "zstd:-",
      "zstd:\0"sv,
      "zstd\0"sv,
      "none:",
      "none:1",
      "zlib",
      ":",
      ":1",
      "zstd:9223372036854775808",
      "zstd:-99999999999",
      "lz4hc",
  };
  for (const std::string_view text : kRefused) {
    CAPTURE(std::string(text));
    CHECK(parse_codec(text) == nullptr);
  }
}

TEST_CASE("one codec serves many threads, each with its own context") {
  for (const char* const name : {"lz4", "zstd"}) {
    const auto codec = parse_codec(name);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const auto context = codec->make_context();
        for (size_t i = static_cast<size_t>(t); i < test::corpus_pages().size(); i += 4) {
          std::array<std::byte, kMaxCompressedBytes> out;
          test::Page restored;
          const test::Page& page = test::corpus_pages()[i];
          const size_t length = context->compress(page, out);
          if (length == 0) continue;
          wrong += !context->decompress(std::span(out).first(length), restored) || restored != page;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
  }
}

}  // namespace
}  // namespace cswap
