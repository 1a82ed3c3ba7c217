// What the server tells a client of itself, and which names it answers to.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <stdexcept>

#include "plugin/unique_fd.h"
#include "tests/integration/helpers.h"

namespace cswap::test {
namespace {

// The table that nbdinfo must show; see also the manual.
const Words kWritable = {"is_rotational: false",
                         "is_read_only: false",
                         "can_cache: true",
                         "can_df: true",
                         "can_fast_zero: true",
                         "can_flush: true",
                         "can_fua: true",
                         "can_multi_conn: true",
                         "can_trim: true",
                         "can_zero: true",
                         "block_size_minimum: 1",
                         "block_size_preferred: 4096",
                         "block_size_maximum: 67108864",
                         "export-size: 67108864",
                         "base:allocation"};
const Words kReadOnly = {
    "is_rotational: false", "is_read_only: true", "can_cache: true",
    "can_fast_zero: false", "can_flush: true",    "can_multi_conn: true",
    "can_trim: false",      "can_zero: false",    "block_size_preferred: 4096"};

void check_nbdinfo(const Words& nbdkit_options, const Words& expected) {
  ServerOptions options;
  options.nbdkit = nbdkit_options;
  NbdServer server(options);
  const Output output = run({"nbdinfo", "nbd+unix:///?socket=" + server.socket()});
  CAPTURE(output.out);
  CHECK(output.exit.clean());
  for (const std::string& line : expected) {
    CAPTURE(std::string(line));
    CHECK(contains(output.out, line));
  }
  server.stop();
}

TEST_CASE("nbdinfo shows the flags of a writable device") { check_nbdinfo({}, kWritable); }

TEST_CASE("nbdinfo shows the flags of a read-only device") { check_nbdinfo({"-r"}, kReadOnly); }

TEST_CASE("a read-only device refuses what would change it") {
  ServerOptions options;
  options.nbdkit = {"-r"};
  NbdServer server(options);
  {
    NbdClient client(server.socket());
    CHECK(client.write(0, random_bytes(4096, 1)) == EPERM);
    CHECK(is_zero(client.read(0, 4096)));
  }
  server.stop();
}

TEST_CASE("the one export is listed with its description") {
  NbdServer server({});
  const Output output = run({"nbdinfo", "--list", "nbd+unix:///?socket=" + server.socket()});
  CAPTURE(output.out);
  CHECK(output.exit.clean());
  CHECK(contains(output.out, "export=\"\""));
  CHECK(contains(output.out, "compressed swap device"));
  server.stop();
}

Words bogus_names() {
  Words names = {"/",  "..",         "a/", " ",        "%00",      "?",       "#",
                 "\n", "\"quotes\"", "'",  "\xff\xfe", "\xc3\x28", "default", "tab\t"};
  for (const size_t length : {1, 255, 256, 257, 3000, 4096}) names.emplace_back(length, 'n');
  return names;
}

TEST_CASE("an unknown export name is refused and the server lives on") {
  NbdServer server({});
  for (const std::string& name : bogus_names()) {
    CAPTURE(name);
    CHECK_THROWS_AS(NbdClient(server.socket(), name), std::runtime_error);
  }
  CHECK(NbdClient(server.socket(), "").size() == 64 * kMiB);
  // No name of a client's has become a tenant.
  const std::string json = server.stats().json();
  CHECK(contains(json, "\"tenants\":[{\"name\":\""));
  CHECK(!contains(json, "\"name\":\"n"));
  server.stop();
}

TEST_CASE("memory does not grow with names that are refused" * doctest::skip(kSanitized)) {
  NbdServer server({});
  const auto try_names = [&] {
    for (int i = 0; i < 500; ++i) {
      CHECK_THROWS_AS(NbdClient(server.socket(), std::string(4096, 'n')), std::runtime_error);
    }
  };
  try_names();
  const uint64_t before = server.status("VmRSS");
  try_names();
  try_names();
  CHECK(server.status("VmRSS") < before + 4096);
  server.stop();
}

UniqueFd connect_only(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

TEST_CASE("a thousand connections without a handshake leave memory flat and clients served" *
          doctest::skip(kSanitized)) {
  NbdServer server({});
  for (int i = 0; i < 100; ++i) connect_only(server.socket());
  CHECK(NbdClient(server.socket()).read(0, 4096) == Bytes(4096));
  const uint64_t before = server.status("VmRSS");
  for (int i = 0; i < 1000; ++i) connect_only(server.socket());
  CHECK(NbdClient(server.socket()).read(0, 4096) == Bytes(4096));
  await_no_connections(server.pid());
  CHECK(server.status("VmRSS") < before + 10 * 1024);
  server.stop();
}

TEST_CASE("a hundred idle connections do not keep a client from being served") {
  NbdServer server({});
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 100; ++i) idle.push_back(connect_only(server.socket()));
  CHECK(NbdClient(server.socket()).read(0, 4096) == Bytes(4096));
  idle.clear();
  server.stop();
}

TEST_CASE("a write on one connection is read on another after a flush on a third") {
  NbdServer server({});
  {
    NbdClient writer(server.socket());
    NbdClient flusher(server.socket());
    NbdClient reader(server.socket());
    for (uint64_t i = 0; i < scaled(10000, 500); ++i) {
      const uint64_t page = i % 64;
      const Bytes content = stamped_bytes(page, 1, i);
      REQUIRE(writer.write(page * kPageBytes, content) == 0);
      REQUIRE(flusher.flush() == 0);
      REQUIRE(reader.read(page * kPageBytes, kPageBytes) == content);
    }
  }
  server.stop();
}

}  // namespace
}  // namespace cswap::test
