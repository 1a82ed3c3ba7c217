// The server's real memory, as the kernel counts it.
#include <doctest/doctest.h>

#include <stdexcept>

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

// Waits until the server is so small; what was trimmed goes back when it has been freed.
void await_rss(const NbdServer& server, uint64_t kib) {
  uint64_t rss = 0;
  const auto falls = [&] {
    rss = server.status("VmRSS");
    return rss <= kib;
  };
  try {
    await("resident memory to fall", falls);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(std::string(error.what()) + " to " + std::to_string(kib) +
                             " KiB, not " + std::to_string(rss) + "\n" + server.stats().json());
  }
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
    await_rss(server, before + kSlackKiB);
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
    await_rss(server, full - kFillKiB / 2 + kSlackKiB);
    // Every other slot cluster of the rest.
    for (uint64_t at = kFill / 2; at < kFill; at += 4 * kMiB) {
      REQUIRE(client.trim(at, 2 * kMiB) == 0);
    }
    await_rss(server, full - kFillKiB / 4 * 3 + kSlackKiB);
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
    // A MiB of objects of eight bytes, and what the store keeps for objects to come: 8 MiB and an
    // eighth of that, which with free=sync nobody gives back before a trim.
    const uint64_t left = 10 * kMiB;
    await_rss(server, before + left / kKiB + kSlackKiB);
    const Stats stats = server.stats();
    CAPTURE(stats.json());
    CHECK(stats["same_pages"] == kFill / kPageBytes);
    CHECK(stats["pool_total_size"] <= left);
    REQUIRE(client.trim(0, kFill) == 0);
    server.stats_when("few objects",
                      [](const Stats& s) { return s["pool_total_size"] <= 2 * kMiB; });
  }
  server.stop();
}

TEST_SUITE_END();

}  // namespace
}  // namespace cswap::test
