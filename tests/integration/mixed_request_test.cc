// One request whose pages are of different kinds: none may shift the others.
#include <doctest/doctest.h>

#include "tests/integration/helpers.h"

namespace cswap::test {
namespace {

constexpr int kKinds = 5;
constexpr int kNeverWritten = 4;
constexpr uint64_t kGuard = 2 * kPageBytes;  // neighbours on each side

// The kinds of four pages that follow each other; all orderings of length four are the digits of
// a number to base kKinds.
constexpr int kOrderings = kKinds * kKinds * kKinds * kKinds;

int kind_of(int ordering, uint64_t page) {
  for (uint64_t i = page % 4; i > 0; --i) ordering /= kKinds;
  return ordering % kKinds;
}

void make_page(int kind, uint64_t index, std::byte* to) {
  Page page{};
  if (kind == 1) page.fill(std::byte(0x10 + index % 200));
  if (kind == 2) page = stamped_page(index, 1);
  if (kind == 3) page = random_page(index);
  std::memcpy(to, page.data(), kPageBytes);
}

// The bytes of a request: what is never written is zero in a request that covers it.
Bytes make_request(int ordering, uint64_t first_page, uint64_t pages) {
  Bytes bytes(pages * kPageBytes);
  for (uint64_t i = 0; i < pages; ++i) {
    make_page(kind_of(ordering, i), first_page + i, bytes.data() + i * kPageBytes);
  }
  return bytes;
}

// Writes the pages that are written in this ordering, each run of them as one request.
void write_runs(NbdClient& client, uint64_t at, int ordering, const Bytes& bytes) {
  const uint64_t pages = bytes.size() / kPageBytes;
  for (uint64_t i = 0; i < pages;) {
    uint64_t end = i;
    while (end < pages && kind_of(ordering, end) != kNeverWritten) ++end;
    if (end > i) {
      REQUIRE(client.write(at + i * kPageBytes,
                           std::span(bytes).subspan(i * kPageBytes, (end - i) * kPageBytes)) == 0);
    }
    i = std::max(end, i + 1);
  }
}

void check_around(NbdClient& client, uint64_t at, const Bytes& content, const Bytes& guard) {
  REQUIRE(client.read(at - kGuard, kGuard) == guard);
  REQUIRE(client.read(at, content.size()) == content);
  REQUIRE(client.read(at + content.size(), kGuard) == guard);
}

class MixedRequest {
 public:
  explicit MixedRequest(const Words& switches)
      : server_(options(switches)), client_(server_.socket()) {}

  // `offset` is where the request starts in its page.
  void round_trip(int ordering, uint64_t bytes, uint64_t offset) {
    CAPTURE(ordering);
    CAPTURE(bytes);
    CAPTURE(offset);
    const uint64_t at = kMiB + offset;
    const Bytes guard = random_bytes(kGuard, 9);
    const Bytes content = make_request(ordering, at / kPageBytes, bytes / kPageBytes);
    REQUIRE(client_.trim(0, client_.size()) == 0);
    REQUIRE(client_.write(at - kGuard, guard) == 0);
    REQUIRE(client_.write(at + bytes, guard) == 0);
    REQUIRE(client_.write(at, content) == 0);
    check_around(client_, at, content, guard);
  }

  // Pages never written stay so, among those that one read covers.
  void read_over_holes(int ordering, uint64_t bytes) {
    CAPTURE(ordering);
    const Bytes content = make_request(ordering, kMiB / kPageBytes, bytes / kPageBytes);
    REQUIRE(client_.trim(0, client_.size()) == 0);
    write_runs(client_, kMiB, ordering, content);
    REQUIRE(client_.read(kMiB, bytes) == content);
    REQUIRE(same_bytes(client_.read(kMiB + 512, bytes - 512), std::span(content).subspan(512)));
  }

  void stop() {
    client_ = NbdClient::unconnected();
    server_.stop();
  }

 private:
  static ServerOptions options(const Words& switches) {
    ServerOptions options;
    options.parameters = {"72M"};
    options.parameters.insert(options.parameters.end(), switches.begin(), switches.end());
    return options;
  }

  NbdServer server_;
  NbdClient client_;
};

void all_orderings(const Words& switches) {
  MixedRequest mixed(switches);
  for (int ordering = 0; ordering < kOrderings; ++ordering) {
    for (const uint64_t offset : {0, 512}) {
      mixed.round_trip(ordering, 4 * kPageBytes, offset);
      if (ordering % 5 == 0) mixed.round_trip(ordering, 2 * kPageBytes, offset);
      if (ordering % 50 == 0) mixed.round_trip(ordering, 64 * kPageBytes, offset);
    }
    mixed.read_over_holes(ordering, 12 * kPageBytes);
  }
  mixed.stop();
}

TEST_CASE("every ordering of page kinds in one request comes back, lz4") { all_orderings({}); }

TEST_CASE("every ordering of page kinds in one request comes back, zstd, checksums") {
  all_orderings({"compressor=zstd", "checksum=on"});
}

TEST_CASE("every ordering of page kinds in one request comes back, same-filled pages off") {
  all_orderings({"same_filled=off", "compressor=lz4:17"});
}

TEST_CASE("the largest requests of clients and of the server come back") {
  MixedRequest mixed({});
  for (const int ordering : {38, 194, 461}) {
    for (const uint64_t offset : {0, 512}) {
      mixed.round_trip(ordering, 2 * kMiB, offset);
      mixed.round_trip(ordering, 32 * kMiB, offset);
      if (!kSanitized) mixed.round_trip(ordering, 64 * kMiB, offset);
    }
  }
  mixed.stop();
}

}  // namespace
}  // namespace cswap::test
