#include <doctest/doctest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <new>

#include "plugin/stats_server.h"
#include "tests/http/client.h"
#include "tests/http/exposition.h"

namespace cswap::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

TEST_CASE("both pages over a unix socket, on connections of their own and kept alive") {
  UnixServer server;
  CHECK_NOTHROW((void)parse_exposition(server.get("/metrics").body));
  Client client = server.connect();
  for (int i = 0; i < 50; ++i) {
    CHECK(client.get("/metrics").status == 200);
    CHECK(client.get("/stats.json").fields["content-type"] == "application/json");
    CHECK(client.get("/none").status == 404);
  }
}

TEST_CASE("over TCP too, and the port is free afterwards") {
  StatsServer server(tcp_endpoint("127.0.0.1", 0), {[] { return sample_pool(); }, {}, {}});
  REQUIRE(server.bind(false) == "");
  REQUIRE(server.start() == "");
  const uint16_t port = server.port();
  Client client = Client::to_loopback(port);
  CHECK(client.get("/metrics").status == 200);
  CHECK(client.send("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n"));
  CHECK(client.receive(true).status == 200);
  CHECK(client.get("/metrics").status == 200);
  server.stop();
  CHECK(client.closed_by_server());
  StatsListener next;
  CHECK(next.open(tcp_endpoint("127.0.0.1", port), false) == "");
}

TEST_CASE("junk is answered with a 4xx or a closed connection, and harms nobody") {
  UnixServer server;
  Client honest = server.connect();
  const std::vector<std::string> junk = {
      "GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + std::string(1 << 20, 'a') + "\r\n\r\n",
      "GET /metrics HTTP/1.1\r\n\r\n",
      "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nabcd",
      "GET /../x HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /metrics\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(505, 'r'),
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n" +
          std::string(1 << 20, 'c'),
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n" +
          std::string(1 << 20, 'c'),
      std::string(1 << 16, '\0')};
  for (const std::string& bytes : junk) {
    CAPTURE(bytes.substr(0, 80));
    Client client = server.connect();
    // All of it can be sent, although the refusal comes before the end.
    CHECK(client.send(bytes));
    const Reply reply = client.receive();
    CHECK(reply.status >= 400);
    CHECK(reply.status < 500);
    CHECK(honest.get("/metrics").status == 200);
  }
  Client two = server.connect();
  two.send(get_request("/metrics") + get_request("/stats.json"));
  CHECK(two.receive().fields["content-type"].starts_with("text/plain"));
  CHECK(two.receive().fields["content-type"] == "application/json");
}

TEST_CASE("a client that has sent all and waits gets its replies, then the end") {
  UnixServer server;
  Client client = server.connect();
  client.send(get_request("/metrics") + get_request("/none"));
  client.finish_sending();
  CHECK(client.receive().status == 200);
  CHECK(client.receive().status == 404);
  CHECK(client.closed_by_server());
}

TEST_CASE("each phase has its deadline, and none cuts a client that keeps to it") {
  StatsLimits limits;
  limits.head = 150ms;
  limits.request = 300ms;
  limits.linger = 150ms;
  limits.idle = 60s;
  SUBCASE("no byte, half a head, half a later head, half a body") {
    UnixServer server(limits);
    Client patient = server.connect();
    CHECK(patient.get("/metrics").status == 200);
    Client silent = server.connect();
    Client half = server.connect();
    half.send("GET /met");
    Client later = server.connect();
    CHECK(later.get("/metrics").status == 200);
    later.send("G");
    Client body = server.connect();
    body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    Client leaver = server.connect();
    leaver.send("junk\r\n\r\n");
    CHECK(silent.closed_by_server());
    CHECK(half.closed_by_server());
    CHECK(later.closed_by_server());
    CHECK(body.closed_by_server());
    CHECK(leaver.closed_by_server());
    // By now the other limits have passed for this one too, and it was idle.
    CHECK(patient.get("/metrics").status == 200);
  }
  SUBCASE("idle between requests") {
    limits.idle = 150ms;
    UnixServer server(limits);
    Client client = server.connect();
    CHECK(client.get("/metrics").status == 200);
    CHECK(client.closed_by_server());
  }
  SUBCASE("a reply that is not read") {
    limits.reply = 300ms;
    const std::vector<std::string> names(200, std::string(4000, 'n'));
    UnixServer server(limits, [&names] { return sample_pool(names); });
    Client client = server.connect();
    client.send(get_request("/stats.json"));
    // Closed while most of the reply, which no socket buffer takes whole, is still to be sent.
    REQUIRE(client.wait_closed());
    CHECK(client.receive().status == 0);
  }
}

TEST_CASE("a snapshot that fails costs its connection and nothing else") {
  std::atomic<int> failures = 3;
  UnixServer server({}, [&failures]() -> PoolSnapshot {
    const int left = failures.load();
    if (left > 0) failures = left - 1;
    if (left == 1) throw 1;
    if (left == 2) throw std::runtime_error("broken");
    if (left == 3) throw std::bad_alloc();
    return sample_pool();
  });
  Client other = server.connect();
  CHECK(other.get("/none").status == 404);
  for (int i = 0; i < 3; ++i) {
    Client client = server.connect();
    client.send(get_request("/metrics"));
    CHECK(client.closed_by_server());
  }
  CHECK(other.get("/metrics").status == 200);
}

TEST_CASE("the thread has its name, no signals, and runs the hook first") {
  const TempDir dir;
  char name[16] = "";
  bool term_blocked = false;
  pid_t hook_thread = 0;
  pid_t snapshot_thread = 0;
  std::vector<std::string> log;
  StatsHooks hooks;
  hooks.on_thread_start = [&] {
    pthread_getname_np(pthread_self(), name, sizeof name);
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    term_blocked = sigismember(&blocked, SIGTERM) == 1;
    hook_thread = gettid();
    throw std::runtime_error("hooks may fail");
  };
  hooks.snapshot = [&]() -> PoolSnapshot {
    snapshot_thread = gettid();
    throw std::runtime_error("broken");
  };
  hooks.log = [&log](const std::string& line) { log.push_back(line); };
  StatsServer server(unix_endpoint(dir.path("s")), hooks);
  REQUIRE(server.bind(false) == "");
  CHECK(hook_thread == 0);
  REQUIRE(server.start() == "");
  for (int i = 0; i < 5; ++i) {
    Client client = Client::to_unix(dir.path("s"));
    client.send(get_request("/metrics"));
    CHECK(client.closed_by_server());
  }
  server.stop();
  CHECK(std::string(name) == "cswap-stats");
  CHECK(term_blocked);
  CHECK(hook_thread == snapshot_thread);
  CHECK(hook_thread != gettid());
  REQUIRE(log.size() == 1);  // not one line for each failure
  CHECK(log[0].find("broken") != std::string::npos);
}

TEST_CASE("stop closes everything and removes the socket, and a second one does nothing") {
  const size_t before = open_descriptors();
  {
    UnixServer server;
    std::vector<Client> clients;
    for (int i = 0; i < 20; ++i) clients.push_back(server.connect());
    CHECK(server.get("/metrics").status == 200);
    CHECK(open_descriptors() > before + 20);
    server.server().stop();
    for (Client& client : clients) CHECK(client.closed_by_server());
    CHECK_FALSE(fs::exists(server.path()));
    server.server().stop();
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("a server that was never started leaves nothing behind") {
  const TempDir dir;
  const size_t before = open_descriptors();
  {
    StatsServer server(unix_endpoint(dir.path("s")), {[] { return sample_pool(); }, {}, {}});
    REQUIRE(server.bind(false) == "");
  }
  CHECK_FALSE(fs::exists(dir.path("s")));
  CHECK(open_descriptors() == before);
}

// Runs the function in a fork that leaves without destructors, and says whether it returned true.
bool in_fork(const std::function<bool()>& function) {
  std::fflush(nullptr);  // else the child's end prints it again
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) ::_exit(function() ? 0 : 1);
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_CASE("as a daemon: the parent's end does not take the socket from the child") {
  const TempDir dir;
  const std::string path = dir.path("s");
  auto server = std::make_unique<StatsServer>(unix_endpoint(path),
                                              StatsHooks{[] { return sample_pool(); }, {}, {}});
  REQUIRE(server->bind(false) == "");
  int started[2];
  int finish[2];
  REQUIRE(::pipe(started) == 0);
  REQUIRE(::pipe(finish) == 0);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  char byte = 0;
  if (child == 0) {
    ::close(finish[1]);
    const bool ok = server->start().empty();
    if (::write(started[1], &byte, 1) != 1) ::_exit(2);
    if (::read(finish[0], &byte, 1) != 0) ::_exit(3);
    server->stop();
    ::_exit(ok && !fs::exists(path) ? 0 : 1);
  }
  SUBCASE("that ends when the child serves") { CHECK(::read(started[0], &byte, 1) == 1); }
  SUBCASE("that ends at once") {}
  server.reset();  // as a static destructor in the parent would
  CHECK(fs::exists(path));
  CHECK(Client::to_unix(path).get("/metrics").status == 200);
  for (const int fd : {started[0], started[1], finish[0], finish[1]}) ::close(fd);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a fork of the serving process takes nothing from it") {
  UnixServer server;
  CHECK(in_fork([&server] {
    server.server().stop();
    return fs::exists(server.path());
  }));
  CHECK(server.get("/metrics").status == 200);
}

TEST_CASE("without descriptors it waits, at rest, and then goes on") {
  const TempDir dir;
  clockid_t cpu_clock{};
  StatsHooks hooks;
  hooks.snapshot = [] { return sample_pool(); };
  hooks.on_thread_start = [&cpu_clock] { pthread_getcpuclockid(pthread_self(), &cpu_clock); };
  StatsServer server(unix_endpoint(dir.path("s")), hooks);
  REQUIRE(server.bind(false) == "");
  REQUIRE(server.start() == "");
  CHECK(Client::to_unix(dir.path("s")).get("/metrics").status == 200);
  const auto cpu_ms = [&cpu_clock] {
    timespec time{};
    REQUIRE(clock_gettime(cpu_clock, &time) == 0);
    return time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
  };

  Client kept = Client::to_unix(dir.path("s"));
  CHECK(kept.get("/metrics").status == 200);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  Client late = Client::unconnected();
  // From here on no number is left for the server's side of a connection.
  const int lowest_free = ::dup(0);
  ::close(lowest_free);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(lowest_free);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto start_ms = cpu_ms();
  late.connect_unix(dir.path("s"));
  late.send(get_request("/metrics"));
  // Nothing comes; the time is what makes a spin visible.
  CHECK_FALSE(late.readable_within(400ms));
  CHECK(cpu_ms() - start_ms < 200);
  CHECK(kept.get("/metrics").status == 200);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(late.receive().status == 200);
}

}  // namespace
}  // namespace cswap::test
