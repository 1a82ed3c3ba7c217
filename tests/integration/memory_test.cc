// The server's real memory, as the kernel counts it.
#include <doctest/doctest.h>

#include "tests/integration/helpers.h"

namespace cswap::test {
namespace {

constexpr uint64_t kFill = scaled(256, 64) * kMiB;
constexpr uint64_t kFillKiB = kFill / kKiB;
// What the C library's heap and the like may add.
constexpr uint64_t kSlackKiB = 4 * 1024;

// One thread, so that there is one buffer for requests from the first of them on.
ServerOptions one_thread() {
  ServerOptions options;
  options.parameters = {"1G"};
  options.nbdkit = {"-t", "1"};
  return options;
}

void fill_device(NbdClient& client) {
  for (uint64_t at = 0; at < kFill; at += kMiB) {
    REQUIRE(client.write(at, random_bytes(kMiB, at)) == 0);
  }
}

// Of sanitizers, shadow memory is resident too and does not fall.
TEST_SUITE_BEGIN("memory" * doctest::skip(kSanitized));

TEST_CASE("resident memory falls when the device is trimmed") {
  NbdServer server(one_thread());
  {
    NbdClient client(server.socket());
    REQUIRE(client.write(kFill, random_bytes(kMiB, 1)) == 0);
    const uint64_t before = server.status("VmRSS");
    fill_device(client);
    const uint64_t full = server.status("VmRSS");
    CHECK(full >= before + kFillKiB);
    // Within a tenth of what the statistics say.
    CHECK((full - before) * kKiB <= server.stats()["mem_used_total"] / 10 * 11 + 8 * kMiB);
    REQUIRE(client.trim(0, kFill) == 0);
    CHECK(server.status("VmRSS") <= before + kSlackKiB);
  }
  server.stop();
}

TEST_CASE("resident memory falls by what a part of a trim covers") {
  NbdServer server(one_thread());
  {
    NbdClient client(server.socket());
    fill_device(client);
    const uint64_t full = server.status("VmRSS");
    REQUIRE(client.trim(0, kFill / 2) == 0);
    CHECK(server.status("VmRSS") <= full - kFillKiB / 2 + kSlackKiB);
    // Every other slot cluster of the rest.
    for (uint64_t at = kFill / 2; at < kFill; at += 4 * kMiB) {
      REQUIRE(client.trim(at, 2 * kMiB) == 0);
    }
    CHECK(server.status("VmRSS") <= full - kFillKiB / 4 * 3 + kSlackKiB);
    CHECK(client.read(kFill - kMiB, kMiB) == random_bytes(kMiB, kFill - kMiB));
  }
  server.stop();
}

TEST_CASE("resident memory falls when data is overwritten by what compresses") {
  NbdServer server(one_thread());
  {
    NbdClient client(server.socket());
    REQUIRE(client.write(kFill, random_bytes(kMiB, 1)) == 0);
    const uint64_t before = server.status("VmRSS");
    fill_device(client);
    CHECK(server.status("VmRSS") >= before + kFillKiB);
    for (uint64_t at = 0; at < kFill; at += kMiB) {
      REQUIRE(client.write(at, Bytes(kMiB, std::byte{7})) == 0);
    }
    const Stats stats = server.stats();
    CAPTURE(stats.json());
    // A MiB of objects of eight bytes, and the few MiB that the store keeps for objects to come.
    CHECK(server.status("VmRSS") <= before + 8 * kMiB / kKiB + kSlackKiB);
    CHECK(stats["same_pages"] == kFill / kPageBytes);
    CHECK(stats["pool_total_size"] <= 8 * kMiB);
    REQUIRE(client.trim(0, kFill) == 0);
    CHECK(server.stats()["pool_total_size"] <= 2 * kMiB);
  }
  server.stop();
}

TEST_SUITE_END();

}  // namespace
}  // namespace cswap::test
