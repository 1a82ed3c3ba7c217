// Requests that do not begin or end with a page.
#include <doctest/doctest.h>

#include "tests/integration/helpers.h"

namespace cswap::test {
namespace {

// A device and what it must hold.
class Pair {
 public:
  explicit Pair(NbdServer& server, uint64_t bytes = 64 * kKiB)
      : client_(server.socket()), model_(bytes) {}

  void write(uint64_t offset, const Bytes& data) {
    REQUIRE(client_.write(offset, data) == 0);
    std::copy(data.begin(), data.end(), model_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  void trim_all() {
    REQUIRE(client_.trim(0, model_.size()) == 0);
    std::fill(model_.begin(), model_.end(), std::byte{0});
  }
  [[nodiscard]] bool agree() { return client_.read(0, model_.size()) == model_; }
  [[nodiscard]] bool agree(uint64_t offset, uint64_t length) {
    return same_bytes(client_.read(offset, length), std::span(model_).subspan(offset, length));
  }

 private:
  NbdClient client_;
  Bytes model_;
};

TEST_CASE("requests of 512 bytes to 64 KiB work at every 512 byte offset inside three pages") {
  ServerOptions options;
  options.parameters = {"128K"};
  NbdServer server(options);
  {
    Pair pair(server, 128 * kKiB);
    uint64_t seed = 0;
    for (const uint64_t length : {512, 1024, 4096, 16384, 65536}) {
      for (uint64_t offset = 0; offset <= 3 * kPageBytes; offset += 512) {
        CAPTURE(length);
        CAPTURE(offset);
        // By turns compressible and not.
        Bytes data = random_bytes(length, ++seed);
        if (seed % 2 == 0) std::fill(data.begin() + 64, data.end(), data[0]);
        pair.write(offset, data);
        REQUIRE(pair.agree());
        REQUIRE(pair.agree(offset, length));
      }
    }
  }
  server.stop();
}

enum class State { kAbsent, kZero, kSame, kSameUnfit, kCompressed, kRaw };
constexpr State kStates[] = {State::kAbsent,    State::kZero,       State::kSame,
                             State::kSameUnfit, State::kCompressed, State::kRaw};

Bytes page_of(State state, uint64_t seed) {
  Bytes page(kPageBytes);
  if (state == State::kSame) std::fill(page.begin(), page.end(), std::byte{0x0b});
  // The top bits of the word differ, so a slot word has no room for it.
  if (state == State::kSameUnfit) std::fill(page.begin(), page.end(), std::byte{0x5a});
  if (state == State::kCompressed) return stamped_bytes(seed, 1, seed);
  if (state == State::kRaw) return random_bytes(kPageBytes, seed);
  return page;
}

void start_as(Pair& pair, State state, uint64_t seed) {
  pair.trim_all();
  // Neighbours that must not change.
  pair.write(0, random_bytes(kPageBytes, seed + 1));
  pair.write(2 * kPageBytes, stamped_bytes(2, 1, seed + 2));
  if (state != State::kAbsent) pair.write(kPageBytes, page_of(state, seed));
}

// All parts of a page over one page state, with what would bring the page into each other state.
void overwrite_parts(Pair& pair, State from, State to) {
  uint64_t seed = 100;
  for (const uint64_t length : {1, 511, 512, 4095}) {
    for (uint64_t offset = 0; offset < kPageBytes; offset += 512) {
      ++seed;
      start_as(pair, from, seed);
      CAPTURE(static_cast<int>(from));
      CAPTURE(static_cast<int>(to));
      CAPTURE(length);
      CAPTURE(offset);
      // May reach into the next page.
      const Bytes whole = page_of(to, seed + 7);
      pair.write(kPageBytes + offset,
                 Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
      REQUIRE(pair.agree());
    }
  }
}

void overwrite_matrix(const Words& switches) {
  ServerOptions options;
  options.parameters = {"64K"};
  options.parameters.insert(options.parameters.end(), switches.begin(), switches.end());
  NbdServer server(options);
  {
    Pair pair(server);
    for (const State from : kStates) {
      for (const State to : kStates) {
        if (to != State::kAbsent) overwrite_parts(pair, from, to);
      }
    }
    const Stats stats = server.consistent_stats();
    CHECK(stats["decompress_fail"] == 0);
    pair.trim_all();
    CHECK(server.stats()["stored_pages"] == 0);
  }
  server.stop();
}

TEST_CASE("a part written into a page of any state leaves the rest as it was, lz4") {
  overwrite_matrix({"compressor=lz4"});
}

TEST_CASE("a part written into a page of any state leaves the rest as it was, zstd, checksums") {
  overwrite_matrix({"compressor=zstd", "checksum=on"});
}

TEST_CASE("a part written into a page of any state leaves the rest as it was, uncompressed") {
  overwrite_matrix({"compressor=none", "same_filled=off"});
}

TEST_CASE("a page moves from one state's count to another's when it is overwritten") {
  NbdServer server({});
  {
    NbdClient client(server.socket());
    for (const State from : kStates) {
      for (const State to : kStates) {
        if (to == State::kAbsent) continue;
        REQUIRE(client.trim(0, kPageBytes) == 0);
        if (from != State::kAbsent) REQUIRE(client.write(0, page_of(from, 1)) == 0);
        REQUIRE(client.write(0, page_of(to, 2)) == 0);
        CAPTURE(static_cast<int>(from));
        CAPTURE(static_cast<int>(to));
        const Stats stats = server.consistent_stats();
        const bool same = to == State::kZero || to == State::kSame || to == State::kSameUnfit;
        CHECK(stats["stored_pages"] == 1);
        CHECK(stats["same_pages"] == (same ? 1 : 0));
        CHECK(stats["huge_pages"] == (to == State::kRaw ? 1 : 0));
      }
    }
  }
  server.stop();
}

}  // namespace
}  // namespace cswap::test
