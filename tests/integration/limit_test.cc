// mem_limit: refused writes are errors and not damage, and there is a way out of them.
#include <doctest/doctest.h>
#include <unistd.h>

#include "tests/integration/helpers.h"

namespace cswap::test {
namespace {

constexpr uint64_t kLimit = scaled(64, 16) * kMiB;
constexpr uint64_t kDevice = 4 * kLimit;

ServerOptions limited(const Words& switches = {}) {
  ServerOptions options;
  options.parameters = {std::to_string(kDevice), "mem_limit=" + std::to_string(kLimit)};
  options.parameters.insert(options.parameters.end(), switches.begin(), switches.end());
  return options;
}

Bytes content_of(uint64_t page, uint64_t generation = 0) {
  return random_bytes(kPageBytes, page * 1000 + generation);
}

// Writes incompressible pages one by one from `first` on. Returns the first page that was refused;
// at most `most` are written.
uint64_t write_until_refused(NbdClient& client, uint64_t first, uint64_t most) {
  for (uint64_t page = first; page < first + most; ++page) {
    const int error = client.write(page * kPageBytes, content_of(page));
    if (error == 0) continue;
    CHECK(error == ENOSPC);
    return page;
  }
  return first + most;
}

bool holds_pages(NbdClient& client, uint64_t first, uint64_t end) {
  for (uint64_t page = first; page < end; ++page) {
    if (client.read(page * kPageBytes, kPageBytes) != content_of(page)) return false;
  }
  return true;
}

TEST_CASE("a full pool refuses writes with ENOSPC, counts them and keeps what it has") {
  NbdServer server(limited());
  {
    NbdClient client(server.socket());
    const uint64_t full = write_until_refused(client, 0, kDevice / kPageBytes);
    CHECK(full * kPageBytes >= kLimit / 100 * 95);
    CHECK(full * kPageBytes <= kLimit);
    uint64_t refused = 1;
    // The rest of twice the limit.
    for (uint64_t page = full + 1; page < 2 * kLimit / kPageBytes; ++page) {
      REQUIRE(client.write(page * kPageBytes, content_of(page)) == ENOSPC);
      ++refused;
    }
    const Stats stats = server.consistent_stats();
    CHECK(stats["pool_limit_hit"] == refused);
    CHECK(stats["limit_reached"] == 1);
    CHECK(stats["stored_pages"] == full);
    CHECK(stats["reject_alloc_fail"] == 0);
    CHECK(holds_pages(client, 0, full));
    CHECK(is_zero(client.read(full * kPageBytes, 16 * kPageBytes)));
  }
  server.stop();
}

TEST_CASE("a request that is refused changes none of its pages") {
  NbdServer server(limited({"batch=on"}));
  {
    NbdClient client(server.socket());
    const uint64_t full = write_until_refused(client, 0, kDevice / kPageBytes);
    // Old pages, then new ones that there is no room for; also not aligned.
    for (const uint64_t shift : {0, 512}) {
      const uint64_t at = (full - 256) * kPageBytes + shift;
      const Bytes before = client.read(at - kPageBytes, 4 * kMiB);
      CHECK(client.write(at, random_bytes(2 * kMiB, 5)) == ENOSPC);
      CHECK(client.read(at - kPageBytes, 4 * kMiB) == before);
    }
    CHECK(holds_pages(client, 0, full));
    CHECK(server.stats()["stored_pages"] == full);
  }
  server.stop();
}

TEST_CASE("after a trim of a quarter of the limit most of that can be written again") {
  NbdServer server(limited());
  {
    NbdClient client(server.socket());
    const uint64_t full = write_until_refused(client, 0, kDevice / kPageBytes);
    REQUIRE(client.trim(0, kLimit / 4) == 0);
    const uint64_t again = kLimit / 16 * 3 / kPageBytes;
    const uint64_t first = 2 * kLimit / kPageBytes;
    CHECK(write_until_refused(client, first, again) == first + again);
    CHECK(holds_pages(client, first, first + again));
    CHECK(holds_pages(client, kLimit / 4 / kPageBytes, full));
    CHECK(is_zero(client.read(0, kLimit / 4)));
    const Stats stats = server.consistent_stats();  // within the limit again, among others
    CHECK(stats["pool_limit_hit"] == 1);
  }
  server.stop();
}

// Fills to the limit, then trims down to `percent` of it and one step further.
void check_threshold(const Words& switches, uint64_t percent) {
  NbdServer server(limited(switches));
  {
    NbdClient client(server.socket());
    const uint64_t full = write_until_refused(client, 0, kDevice / kPageBytes);
    const uint64_t probe = kDevice / kPageBytes - 1;
    // Steps of the pages that end up in few object clusters, so that whole ones are freed.
    const uint64_t step = kLimit / 64 / kPageBytes;
    uint64_t trimmed = 0;
    while (client.write(probe * kPageBytes, content_of(probe)) == ENOSPC) {
      REQUIRE(trimmed < full);
      const Stats refused = server.stats();
      CHECK(refused["limit_reached"] == 1);
      REQUIRE(client.trim(trimmed * kPageBytes, step * kPageBytes) == 0);
      trimmed += step;
    }
    const Stats accepted = server.consistent_stats();
    CHECK(accepted["limit_reached"] == 0);
    const uint64_t kept = (full - trimmed) * kPageBytes;
    CHECK(kept <= kLimit / 100 * percent);
    CHECK(kept >= kLimit / 100 * percent - 3 * step * kPageBytes);
    CHECK(holds_pages(client, trimmed, full));
  }
  server.stop();
}

TEST_CASE("writes are accepted again below 90 percent of the limit") { check_threshold({}, 90); }

TEST_CASE("writes are accepted again below the accept_threshold that was given") {
  check_threshold({"accept_threshold=50"}, 50);
}

// Overwrites all that a full pool holds with other content of the same size, in requests of so
// many bytes.
void overwrite_at_limit(uint64_t request_bytes, bool refuse_first) {
  CAPTURE(request_bytes);
  NbdServer server(limited());
  {
    NbdClient client(server.socket());
    uint64_t end = write_until_refused(client, 0, kDevice / kPageBytes);
    if (!refuse_first) {
      // As full as it gets without one refusal.
      REQUIRE(client.trim(0, kDevice) == 0);
      REQUIRE(write_until_refused(client, 0, end) == end);
    }
    end -= end % (request_bytes / kPageBytes);
    for (uint64_t round = 1; round <= 2; ++round) {
      for (uint64_t at = 0; at < end * kPageBytes; at += request_bytes) {
        const Bytes content = random_bytes(request_bytes, round * kDevice + at);
        REQUIRE(client.write(at, content) == 0);
        if (at % (16 * request_bytes) == 0) REQUIRE(client.read(at, request_bytes) == content);
      }
    }
    for (uint64_t at = 0; at < end * kPageBytes; at += request_bytes) {
      REQUIRE(client.read(at, request_bytes) == random_bytes(request_bytes, 2 * kDevice + at));
    }
    const Stats stats = server.consistent_stats();  // within the limit again, among others
    CHECK(stats["pool_limit_hit"] == 1);
  }
  server.stop();
}

TEST_CASE("overwriting single pages at the limit does not fail") {
  overwrite_at_limit(kPageBytes, true);
  overwrite_at_limit(kPageBytes, false);
}

TEST_CASE("overwriting a MiB in one request at the limit does not fail") {
  overwrite_at_limit(kMiB, true);
}

TEST_CASE("overwriting half of all in one request at the limit does not fail") {
  overwrite_at_limit(scaled(32, 8) * kMiB - kMiB, true);
}

TEST_CASE("same-filled pages and trims need no room in a full pool") {
  NbdServer server(limited());
  {
    NbdClient client(server.socket());
    const uint64_t full = write_until_refused(client, 0, kDevice / kPageBytes);
    Bytes same(kPageBytes, std::byte{0x0a});
    CHECK(client.write(0, same) == 0);
    CHECK(client.read(0, kPageBytes) == same);
    CHECK(client.zero(kPageBytes, 8 * kPageBytes) == 0);
    CHECK(holds_pages(client, 9, full));
  }
  server.stop();
}

TEST_CASE("compressible data fills a pool by what it takes and not by its pages") {
  NbdServer server(limited());
  {
    NbdClient client(server.socket());
    for (uint64_t at = 0; at < 2 * kLimit; at += kMiB) {
      REQUIRE(client.write(at, stamped_bytes(at / kPageBytes, kMiB / kPageBytes, 7)) == 0);
    }
    const Stats stats = server.stats();
    CHECK(stats["stored_pages"] == 2 * kLimit / kPageBytes);
    CHECK(stats["mem_used_total"] < kLimit);
    CHECK(client.read(kMiB, kMiB) == stamped_bytes(kMiB / kPageBytes, kMiB / kPageBytes, 7));
  }
  server.stop();
}

TEST_CASE("a limit in percent of RAM is that much") {
  ServerOptions options;
  options.parameters = {"64M", "mem_limit=1%"};
  NbdServer server(options);
  const uint64_t limit = server.stats()["mem_limit"];
  const auto ram = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * kPageBytes;
  CHECK(limit > ram / 101);
  CHECK(limit <= ram / 100);
  server.stop();
}

}  // namespace
}  // namespace cswap::test
