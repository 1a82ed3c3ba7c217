#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "plugin/stats_listener.h"
#include "tests/http/client.h"

namespace cswap::test {
namespace {

namespace fs = std::filesystem;

bool names_it(const std::string& message, const std::string& path) {
  return message.find("stats=unix:" + path + ": ") == 0;
}

TEST_CASE("a unix socket is made with mode 0600, whatever the umask") {
  const TempDir dir;
  const mode_t umask_before = ::umask(0);
  StatsListener listener;
  REQUIRE(listener.open(unix_endpoint(dir.path("s")), false) == "");
  ::umask(umask_before);
  struct stat st {};
  REQUIRE(::lstat(dir.path("s").c_str(), &st) == 0);
  CHECK((st.st_mode & 07777) == 0600);
  CHECK_FALSE(Client::to_unix(dir.path("s")).is_closed());
}

TEST_CASE("a socket file that nobody listens on is replaced") {
  const TempDir dir;
  {
    StatsListener killed;
    REQUIRE(killed.open(unix_endpoint(dir.path("s")), false) == "");
  }  // leaves its file, as kill -9 does
  REQUIRE(fs::exists(dir.path("s")));
  StatsListener listener;
  CHECK(listener.open(unix_endpoint(dir.path("s")), false) == "");
  CHECK_FALSE(Client::to_unix(dir.path("s")).is_closed());
}

TEST_CASE("a socket that is served is refused and goes on") {
  const TempDir dir;
  StatsListener first;
  REQUIRE(first.open(unix_endpoint(dir.path("s")), false) == "");
  StatsListener second;
  const std::string message = second.open(unix_endpoint(dir.path("s")), false);
  CHECK(names_it(message, dir.path("s")));
  CHECK(message.find("another process serves") != std::string::npos);
  second.remove_file();
  second.remove_file_unless_served();
  CHECK_FALSE(Client::to_unix(dir.path("s")).is_closed());
}

TEST_CASE("a file, directory or link at the path is refused and untouched") {
  const TempDir dir;
  std::ofstream(dir.path("file")) << "precious";
  fs::create_directory(dir.path("dir"));
  fs::create_symlink("nowhere", dir.path("link"));
  for (const char* name : {"file", "dir", "link"}) {
    CAPTURE(name);
    StatsListener listener;
    const std::string message = listener.open(unix_endpoint(dir.path(name)), false);
    CHECK(names_it(message, dir.path(name)));
    CHECK(message.find("not a socket") != std::string::npos);
    listener.remove_file();
  }
  std::string content;
  std::ifstream(dir.path("file")) >> content;
  CHECK(content == "precious");
  CHECK(fs::is_directory(dir.path("dir")));
  CHECK(fs::is_symlink(dir.path("link")));
}

TEST_CASE("paths that cannot be served are refused by name") {
  const TempDir dir;
  for (const std::string& path :
       {std::string("relative"), std::string(), dir.path("no/such"), "/" + std::string(107, 'x')}) {
    StatsListener listener;
    CHECK(names_it(listener.open(unix_endpoint(path), false), path));
  }
  StatsListener longest;
  const std::string name = dir.path("");
  const std::string path = name + std::string(kMaxSocketPathBytes - name.size(), 'x');
  CHECK(longest.open(unix_endpoint(path), false) == "");
  CHECK(fs::exists(path));
}

TEST_CASE("the socket file is removed only while it is the one made here") {
  const TempDir dir;
  StatsListener listener;
  REQUIRE(listener.open(unix_endpoint(dir.path("s")), false) == "");
  SUBCASE("still there") {
    listener.remove_file();
    CHECK_FALSE(fs::exists(dir.path("s")));
  }
  SUBCASE("replaced by another's, which may have got the same inode number") {
    fs::remove(dir.path("s"));
    StatsListener other;
    REQUIRE(other.open(unix_endpoint(dir.path("s")), false) == "");
    listener.remove_file();
    CHECK(fs::exists(dir.path("s")));
  }
  SUBCASE("replaced by a file") {
    fs::remove(dir.path("s"));
    std::ofstream(dir.path("s")) << "precious";
    listener.remove_file();
    CHECK(fs::exists(dir.path("s")));
  }
  SUBCASE("removed by hand") {
    fs::remove(dir.path("s"));
    listener.remove_file();
  }
  SUBCASE("served by nobody") {
    listener.remove_file_unless_served();
    CHECK_FALSE(fs::exists(dir.path("s")));
  }
  SUBCASE("served by whoever has a copy of the descriptor") {
    const UniqueFd copy(::dup(listener.take_sockets().front().get()));
    listener.remove_file_unless_served();
    CHECK(fs::exists(dir.path("s")));
  }
}

TEST_CASE("a TCP port in use is refused by name") {
  StatsListener first;
  REQUIRE(first.open(tcp_endpoint("127.0.0.1", 0), false) == "");
  REQUIRE(first.port() != 0);
  StatsListener second;
  const std::string message = second.open(tcp_endpoint("127.0.0.1", first.port()), false);
  CHECK(message.find("stats=127.0.0.1:" + std::to_string(first.port()) + ": ") == 0);
  CHECK(message.find("in use") != std::string::npos);
  CHECK(second.take_sockets().empty());
}

TEST_CASE("a port whose connections linger can be taken again") {
  uint16_t port = 0;
  {
    StatsListener first;
    REQUIRE(first.open(tcp_endpoint("127.0.0.1", 0), false) == "");
    port = first.port();
    Client client = Client::to_loopback(port);
    const std::vector<UniqueFd> sockets = first.take_sockets();
    // The server's side closes first, so that it is the one that lingers.
    const UniqueFd accepted(::accept(sockets.front().get(), nullptr, nullptr));
    REQUIRE(accepted.valid());
    ::shutdown(accepted.get(), SHUT_RDWR);
    CHECK(client.closed_by_server());
  }
  StatsListener second;
  CHECK(second.open(tcp_endpoint("127.0.0.1", port), false) == "");
}

TEST_CASE("an address that is not loopback needs stats_public") {
  // None of these is ever listened on: the refusal comes first.
  for (const char* host : {"0.0.0.0", "192.0.2.1", "::", "2001:db8::1", "::ffff:127.0.0.1"}) {
    CAPTURE(host);
    StatsListener listener;
    const std::string message = listener.open(tcp_endpoint(host, 0), false);
    CHECK(message.find("stats_public=on") != std::string::npos);
    CHECK(listener.take_sockets().empty());
  }
  // Allowed, and then found not to be an address of this host (reserved for documentation).
  StatsListener listener;
  const std::string message = listener.open(tcp_endpoint("192.0.2.254", 0), true);
  CHECK(message.find("192.0.2.254") != std::string::npos);
  CHECK(message.find("stats_public") == std::string::npos);
}

TEST_CASE("all of 127/8 and ::1 are loopback, and localhost is resolved") {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) {
    CAPTURE(host);
    StatsListener listener;
    const std::string message = listener.open(tcp_endpoint(host, 0), false);
    const bool no_ipv6 = std::string(host) == "::1" && !message.empty();
    CHECK((message.empty() || no_ipv6));
    for (const UniqueFd& fd : listener.take_sockets()) {
      sockaddr_storage address{};
      socklen_t bytes = sizeof address;
      REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
      CHECK((address.ss_family == AF_INET || address.ss_family == AF_INET6));
    }
  }
  StatsListener unknown;
  CHECK(unknown.open(tcp_endpoint("no-such-host.invalid", 1), false).find("cannot resolve") !=
        std::string::npos);
}

}  // namespace
}  // namespace cswap::test
