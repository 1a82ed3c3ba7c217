// The ways to start and end a server, and what is left of it.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "plugin/unique_fd.h"
#include "tests/integration/helpers.h"
#include "tests/integration/start_modes.h"

namespace cswap::test {
namespace {

size_t own_threads(pid_t pid) {
  const Words names = thread_names(pid);
  return static_cast<size_t>(std::ranges::count_if(
      names, [](const std::string& name) { return name.starts_with("cswap"); }));
}

TEST_CASE("however it is started, it serves, answers for statistics and leaves no socket") {
  for (const Way way : kWays) {
    // The thread sanitizer does not follow threads into a fork, and its runtime crashes the shell.
    if (kThreadSanitizer && (way == Way::kDaemon || way == Way::kRun)) continue;
    CAPTURE(std::string(way_name(way)));
    const auto server = start(way, {}, {"64M"});
    const Bytes content = random_bytes(kMiB, 1);
    REQUIRE(server->client().write(12345, content) == 0);
    CHECK(server->client().read(12345, kMiB) == content);
    CHECK(get_stats(server->stats_socket())["stored_pages"] == 257);
    // One for the statistics, one that frees.
    CHECK(own_threads(server->pid()) == 2);
    server->stop();
    CHECK(!std::filesystem::exists(server->stats_socket()));
  }
}

TEST_CASE("it serves with one thread and with many") {
  for (const char* threads : {"1", "64"}) {
    ServerOptions options;
    options.nbdkit = {"-t", threads};
    NbdServer server(options);
    {
      std::vector<NbdClient> clients;
      for (int i = 0; i < 8; ++i) clients.emplace_back(server.socket());
      for (uint64_t i = 0; i < 64; ++i) {
        const Bytes content = random_bytes(64 * kKiB, i);
        REQUIRE(clients[i % 8].write(i * 100'000, content) == 0);
        REQUIRE(clients[(i + 3) % 8].read(i * 100'000, content.size()) == content);
      }
    }
    server.stop();
  }
}

TEST_CASE("SIGINT ends it as SIGTERM does") {
  NbdServer server({});
  const std::string stats_socket = server.stats_socket();
  ::kill(server.pid(), SIGINT);
  await("the server to end", [&] { return !server.running(); });
  CHECK(!std::filesystem::exists(stats_socket));
}

TEST_CASE("a bad statistics address is reported before the daemon detaches") {
  const ScratchDir dir;
  const std::string path = dir.file("missing") + "/stats.sock";
  const Output output = run_nbdkit({"-U", dir.file("nbd.sock"), "-P", dir.file("pid")},
                                   {"64M", "stats=unix:" + path});
  CHECK(output.exit.code == 1);
  CHECK(contains(output.err, "stats=unix:" + path));
  CHECK(contains(output.err, "No such file"));
  CHECK(!std::filesystem::exists(dir.file("pid")));
}

TEST_CASE("a statistics port that is taken is reported before the daemon detaches") {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(fd.get(), generic, sizeof address) == 0);
  REQUIRE(::listen(fd.get(), 1) == 0);
  REQUIRE(::getsockname(fd.get(), generic, &length) == 0);
  const std::string where = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  const ScratchDir dir;
  const Output output = run_nbdkit({"-U", dir.file("nbd.sock")}, {"64M", "stats=" + where});
  CHECK(output.exit.code == 1);
  CHECK(contains(output.err, where));
  CHECK(contains(output.err, "in use"));
}

ServerOptions with_stats_at(const std::string& path) {
  ServerOptions options;
  options.parameters = {"64M", "stats=unix:" + path};
  options.stats = false;
  return options;
}

TEST_CASE("after a kill it starts again on the socket that was left") {
  const ScratchDir dir;
  const std::string path = dir.file("stats.sock");
  {
    NbdServer server(with_stats_at(path));
    REQUIRE(NbdClient(server.socket()).write(0, random_bytes(kPageBytes, 1)) == 0);
    server.kill();
  }
  CHECK(std::filesystem::exists(path));
  NbdServer server(with_stats_at(path));
  CHECK(get_stats(path)["stored_pages"] == 0);
  CHECK(is_zero(NbdClient(server.socket()).read(0, kPageBytes)));
  server.stop();
  CHECK(!std::filesystem::exists(path));
}

TEST_CASE("a second instance on a live socket is refused and the first serves on") {
  const ScratchDir dir;
  const std::string path = dir.file("stats.sock");
  NbdServer server(with_stats_at(path));
  const Output second = run_nbdkit({"-U", dir.file("nbd.sock")}, {"64M", "stats=unix:" + path});
  CHECK(second.exit.code == 1);
  CHECK(contains(second.err, path));
  CHECK(contains(second.err, "another process serves"));
  CHECK(get_stats(path)["size"] == 64 * kMiB);
  server.stop();
}

TEST_CASE("a file or a directory at the statistics path is refused and untouched") {
  const ScratchDir dir;
  const std::string file = dir.file("file");
  const std::string folder = dir.file("folder");
  std::ofstream(file) << "mine";
  std::filesystem::create_directory(folder);
  for (const std::string& path : {file, folder}) {
    const Output output = run_nbdkit({"-U", dir.file("nbd.sock")}, {"64M", "stats=unix:" + path});
    CHECK(output.exit.code == 1);
    CHECK(contains(output.err, path));
    CHECK(contains(output.err, "not a socket"));
  }
  CHECK(read_file(file) == "mine");
  CHECK(std::filesystem::is_directory(folder));
}

TEST_CASE("a start that nbdkit gives up later does not keep the next from its socket") {
  const ScratchDir dir;
  const std::string path = dir.file("stats.sock");
  // nbdkit cannot listen, after the plugin has bound its socket.
  const Output output =
      run_nbdkit({"-f", "-U", dir.file("missing") + "/nbd.sock"}, {"64M", "stats=unix:" + path});
  CHECK(!output.exit.clean());
  NbdServer server(with_stats_at(path));
  CHECK(get_stats(path)["size"] == 64 * kMiB);
  server.stop();
}

}  // namespace
}  // namespace cswap::test
