// Every allocation of the server's thread is made to fail, alone and with those after it. The
// replaced operator new serves the whole program and fails only in a thread that asked for it, so
// that the test's own go through.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/http/client.h"

namespace {

thread_local bool may_fail = false;
// Allocations until all go through again; the last `run` of them fail.
std::atomic<long> countdown{0};
std::atomic<long> run{1};

}  // namespace

void* operator new(size_t bytes) {
  if (may_fail && countdown.load(std::memory_order_relaxed) > 0 && countdown.fetch_sub(1) <= run) {
    throw std::bad_alloc();
  }
  void* memory = std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace cswap::test {
namespace {

TEST_CASE("any allocation may fail, and only the connection it was for is lost") {
  const TempDir dir;
  StatsHooks hooks;
  hooks.snapshot = [] { return sample_pool(); };
  hooks.on_thread_start = [] { may_fail = true; };
  hooks.log = [](const std::string&) {};
  StatsLimits limits;
  limits.accept_retry = std::chrono::milliseconds(1);
  StatsServer server(unix_endpoint(dir.path("s")), hooks, limits);
  REQUIRE(server.bind(false) == "");
  REQUIRE(server.start() == "");
  Client kept = Client::to_unix(dir.path("s"));
  const std::string metrics = kept.get("/metrics").body;
  const std::string json = kept.get("/stats.json").body;
  SUBCASE("alone") { run = 1; }
  SUBCASE("with nine more") { run = 10; }
  long n = 0;
  int lost = 0;
  bool reached = true;
  while (reached) {
    countdown = n++ + run;
    {
      Client client = Client::to_unix(dir.path("s"));
      for (const auto& [target, whole] : {std::pair("/metrics", metrics), {"/stats.json", json}}) {
        const Reply reply = client.get(target);
        if (reply.status == 0) ++lost;
        // All or nothing: half a page would look like series that ended.
        CHECK((reply.status == 0 || reply.body == whole));
      }
    }
    reached = countdown.exchange(0) < run;
    CAPTURE(n);
    REQUIRE(Client::to_unix(dir.path("s")).get("/metrics").status == 200);
    REQUIRE(kept.get("/none").status == 404);
  }
  MESSAGE(n << " allocations failed, " << lost << " requests lost");
  CHECK(n > 100);
  CHECK(lost > 100);
}

}  // namespace
}  // namespace cswap::test
