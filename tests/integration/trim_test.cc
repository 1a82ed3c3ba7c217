// Trims: long ones, at all offsets, and what they give back.
#include <doctest/doctest.h>

#include "tests/integration/helpers.h"

namespace cswap::test {
namespace {

constexpr uint64_t kDeviceBytes = 16 * kGiB;

struct Covered {
  uint64_t first;  // pages
  uint64_t end;
};

Covered covered_by(uint64_t offset, uint64_t length) {
  return {(offset + kPageBytes - 1) / kPageBytes, (offset + length) / kPageBytes};
}

// Pages at and near all edges that the trims have, and some between.
std::vector<uint64_t> marked_pages(uint64_t offset, uint64_t length) {
  const auto [first, end] = covered_by(offset, length);
  std::vector<uint64_t> pages = {0, 1, kDeviceBytes / kPageBytes - 1};
  for (const uint64_t edge : {first, end, (first + end) / 2}) {
    for (uint64_t page = edge - std::min<uint64_t>(edge, 2); page < edge + 2; ++page) {
      if (page < kDeviceBytes / kPageBytes) pages.push_back(page);
    }
  }
  std::sort(pages.begin(), pages.end());
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  return pages;
}

void check_trim(NbdServer& server, NbdClient& client, uint64_t offset, uint64_t length) {
  CAPTURE(offset);
  CAPTURE(length);
  const auto pages = marked_pages(offset, length);
  for (const uint64_t page : pages) {
    REQUIRE(client.write(page * kPageBytes, random_bytes(kPageBytes, page)) == 0);
  }
  const Stats before = server.stats();
  REQUIRE(before["stored_pages"] == pages.size());
  REQUIRE(before["compr_data_size"] == pages.size() * kPageBytes);
  REQUIRE(client.trim(offset, length) == 0);
  const auto [first, end] = covered_by(offset, length);
  uint64_t left = 0;
  for (const uint64_t page : pages) {
    const bool trimmed = page >= first && page < end;
    left += !trimmed;
    const Bytes expected = trimmed ? Bytes(kPageBytes) : random_bytes(kPageBytes, page);
    REQUIRE(client.read(page * kPageBytes, kPageBytes) == expected);
  }
  const Stats after = server.consistent_stats();
  CHECK(after["stored_pages"] == left);
  CHECK(after["compr_data_size"] == left * kPageBytes);
  CHECK(after["notify_free"] - before["notify_free"] == pages.size() - left);
  for (const uint64_t page : pages) REQUIRE(client.trim(page * kPageBytes, kPageBytes) == 0);
  server.stats_when("no objects", [](const Stats& s) { return s["pool_total_size"] == 0; });
}

TEST_CASE("a trim of any length frees exactly the whole pages that it covers") {
  ServerOptions options;
  options.parameters = {"16G"};
  NbdServer server(options);
  {
    NbdClient client(server.socket());
    const uint64_t lengths[] = {
        512,           4096, kMiB, 2 * kGiB - 512, 2 * kGiB, 2 * kGiB + 4096, 4 * kGiB - 4096,
        4 * kGiB - 512};
    for (const uint64_t length : lengths) {
      for (const uint64_t offset :
           {uint64_t{0}, uint64_t{512}, uint64_t{4096}, kDeviceBytes - length}) {
        check_trim(server, client, offset, length);
      }
    }
  }
  server.stop();
}

// 64 MiB of small objects, so many that most of them wait when they have been trimmed.
void fill_and_trim(NbdServer& server) {
  NbdClient client(server.socket());
  constexpr uint64_t kFilled = 64 * kMiB;
  for (uint64_t at = 0; at < kFilled; at += kMiB) {
    REQUIRE(client.write(at, stamped_bytes(at / kPageBytes, kMiB / kPageBytes, 1)) == 0);
  }
  for (uint64_t at = 0; at < kFilled; at += 2 * kMiB) REQUIRE(client.trim(at, 2 * kMiB) == 0);
}

TEST_CASE("a server may be stopped or killed while what was trimmed waits to be freed") {
  for (const bool stop : {true, false, true, false}) {
    NbdServer server({});
    fill_and_trim(server);
    stop ? server.stop() : server.kill();
  }
}

TEST_CASE("the memory of a device that was trimmed goes back by itself") {
  NbdServer server({});
  fill_and_trim(server);
  const Stats stats =
      server.stats_when("no objects", [](const Stats& s) { return s["pool_total_size"] == 0; });
  CHECK(stats["stored_pages"] == 0);
  CHECK(stats["free_waiting_objects"] == 0);
  CHECK(stats["free_waiting_bytes"] == 0);
  server.stop();
}

TEST_CASE("a trim past the end is refused and frees nothing") {
  ServerOptions options;
  options.parameters = {"16G"};
  NbdServer server(options);
  {
    NbdClient client(server.socket());
    const Bytes content = random_bytes(kPageBytes, 1);
    const uint64_t last = kDeviceBytes - kPageBytes;
    REQUIRE(client.write(last, content) == 0);
    CHECK(client.trim(last, 2 * kPageBytes) == EINVAL);
    CHECK(client.trim(kDeviceBytes, 512) == EINVAL);
    CHECK(client.trim(kDeviceBytes - 2 * kGiB, 4 * kGiB - 512) == EINVAL);
    CHECK(client.zero(last, 2 * kPageBytes) == ENOSPC);
    CHECK(client.read(last, kPageBytes) == content);
    CHECK(server.stats()["stored_pages"] == 1);
  }
  server.stop();
}

TEST_CASE("a trim inside one page changes nothing, a zero only its bytes") {
  NbdServer server({});
  {
    NbdClient client(server.socket());
    Bytes content = random_bytes(3 * kPageBytes, 1);
    REQUIRE(client.write(0, content) == 0);
    CHECK(client.trim(4097, 4094) == 0);
    CHECK(client.trim(1, 4095 + 4095) == 0);  // up to one byte short of the end of page 1
    CHECK(client.read(0, content.size()) == content);
    CHECK(server.stats()["notify_free"] == 0);
    for (const uint32_t flags : {0u, LIBNBD_CMD_FLAG_NO_HOLE, LIBNBD_CMD_FLAG_FAST_ZERO}) {
      CHECK(client.zero(4097 + flags * 100, 50, flags) == 0);
      std::fill_n(content.begin() + 4097 + flags * 100, 50, std::byte{0});
      CHECK(client.read(0, content.size()) == content);
    }
  }
  server.stop();
}

TEST_CASE("zeroed, trimmed and never written pages are holes, others are not") {
  NbdServer server({});
  {
    NbdClient client(server.socket());
    REQUIRE(client.write(0, random_bytes(8 * kPageBytes, 1)) == 0);
    REQUIRE(client.trim(kPageBytes, kPageBytes) == 0);
    REQUIRE(client.zero(3 * kPageBytes, kPageBytes) == 0);
    REQUIRE(client.write(5 * kPageBytes, Bytes(kPageBytes)) == 0);
    std::vector<Extent> extents;
    REQUIRE(client.extents(0, 64 * kMiB, &extents) == 0);
    std::vector<bool> hole(9);
    for (const Extent& extent : extents) {
      for (uint64_t page = 0; page < hole.size(); ++page) {
        const uint64_t at = page * kPageBytes;
        if (at >= extent.offset && at < extent.offset + extent.length) hole[page] = extent.hole;
      }
    }
    CHECK(hole == std::vector<bool>{false, true, false, true, false, true, false, false, true});
    REQUIRE(client.extents(0, 64 * kMiB, &extents, LIBNBD_CMD_FLAG_REQ_ONE) == 0);
    REQUIRE(extents.size() == 1);
    CHECK(extents[0].length == kPageBytes);
  }
  server.stop();
}

}  // namespace
}  // namespace cswap::test
