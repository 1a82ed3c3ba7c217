// Allocations that fail: before serving a message and an end, while serving one request's error.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>

#include "tests/integration/helpers.h"
#include "tests/support/fail_new.h"

namespace cswap::test {
namespace {

// The shim's switch, and the environment of a server that has the shim.
class FailNew {
 public:
  FailNew() {
    const int fd = ::open(path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    REQUIRE(::ftruncate(fd, sizeof(FailNewControl)) == 0);
    void* const at =
        ::mmap(nullptr, sizeof(FailNewControl), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    REQUIRE(at != MAP_FAILED);
    control_ = static_cast<FailNewControl*>(at);
  }
  FailNew(const FailNew&) = delete;
  FailNew& operator=(const FailNew&) = delete;
  ~FailNew() { ::munmap(control_, sizeof(FailNewControl)); }

  [[nodiscard]] Words environment() const {
    return {"LD_PRELOAD=" CSWAP_FAIL_NEW_LIBRARY, std::string(kFailNewVariable) + "=" + path()};
  }
  void arm(int64_t n) { control_->countdown = n; }
  void disarm() { control_->countdown = 0; }
  [[nodiscard]] uint64_t failures() const { return control_->failures; }

 private:
  [[nodiscard]] std::string path() const { return dir_.file("control"); }

  ScratchDir dir_;
  FailNewControl* control_ = nullptr;
};

// Every n at first, then ever larger steps.
int64_t next_sample(int64_t n) { return n + 1 + n / 12; }

// Starts a server whose n-th allocation fails. False when there is no n-th.
bool start_with_failure(FailNew& fail, const ScratchDir& dir, int64_t n) {
  const std::string suffix = std::to_string(n);
  const std::string socket = dir.file("nbd" + suffix);
  const uint64_t failures = fail.failures();
  fail.arm(n);
  Process process(nbdkit_command({"-f", "-U", socket, "-P", dir.file("pid" + suffix)},
                                 {"64M", "compressor=zstd:3", "mem_limit=50%", "checksum=on",
                                  "stats=unix:" + dir.file("stats" + suffix)}),
                  server_environment(fail.environment()), dir.file("log"), dir.file("log"));
  bool serves = process.wait_for_file(dir.file("pid" + suffix));
  for (int i = 0; serves && i < 2; ++i) {
    // The first connection may be the one that memory is refused to.
    try {
      serves = NbdClient(socket).read(0, kPageBytes) == Bytes(kPageBytes);
      break;
    } catch (const std::runtime_error&) {
      serves = i == 0;
    }
  }
  fail.disarm();
  if (serves) process.signal(SIGTERM);
  const Exit exit = process.wait();
  const std::string log = read_file(dir.file("log"));
  CAPTURE(n);
  CAPTURE(log);
  CHECK(exit.signal == 0);
  CHECK(exit.code == (serves ? 0 : 1));
  const bool says_why = contains(log, "memory") || contains(log, "bad_alloc");
  if (!serves) CHECK(says_why);
  CHECK(!contains(log, "terminate"));
  ::unlink(dir.file("log").c_str());
  return fail.failures() != failures;
}

// The sanitizers' runtime has an operator new of its own, which comes first.
TEST_SUITE_BEGIN("allocation" * doctest::skip(kSanitized));

TEST_CASE("an allocation that fails at the start ends it with a message") {
  FailNew fail;
  const ScratchDir dir;
  int64_t n = 1;
  while (start_with_failure(fail, dir, n)) n = next_sample(n);
  CHECK(n > 10);
}

// One of each thing that a client may ask for. Anything may fail, but only with ENOMEM.
void use_everything(NbdServer& server, NbdClient& client, uint64_t page) {
  const uint64_t at = page * kPageBytes;
  std::vector<Extent> extents;
  Bytes buffer(3 * kPageBytes);
  const int errors[] = {client.write(at + 100, random_bytes(2 * kPageBytes, page)),
                        client.read(at, buffer),
                        client.zero(at + kPageBytes, 100),
                        client.extents(0, 64 * kMiB, &extents),
                        client.cache(at, kPageBytes),
                        client.trim(at, kPageBytes),
                        client.flush()};
  for (const int error : errors) CHECK((error == 0 || error == ENOMEM));
  try {
    NbdClient another(server.socket());
    const int error = another.read(at, buffer);
    CHECK((error == 0 || error == ENOMEM));
  } catch (const std::runtime_error&) {
    // Refused.
  }
  try {
    static_cast<void>(server.stats());
  } catch (const std::runtime_error&) {
    // Answered with an error or closed.
  }
}

TEST_CASE("an allocation that fails while serving costs one request and no more") {
  FailNew fail;
  ServerOptions options;
  options.environment = fail.environment();
  NbdServer server(options);
  {
    NbdClient client(server.socket());
    const Bytes kept = random_bytes(kMiB, 1);
    REQUIRE(client.write(32 * kMiB, kept) == 0);
    for (int64_t n = 1;; n = next_sample(n)) {
      CAPTURE(n);
      const uint64_t failures = fail.failures();
      fail.arm(n);
      use_everything(server, client, static_cast<uint64_t>(n) % 1000);
      fail.disarm();
      // The next of everything works.
      const Bytes content = random_bytes(kPageBytes, static_cast<uint64_t>(n));
      REQUIRE(client.write(0, content) == 0);
      REQUIRE(NbdClient(server.socket()).read(0, kPageBytes) == content);
      REQUIRE(client.read(32 * kMiB, kMiB) == kept);
      REQUIRE(server.stats()["stored_pages"] > 0);
      if (fail.failures() == failures) break;
    }
    CHECK(fail.failures() > 10);
  }
  CHECK(std::ranges::count(thread_names(server.pid()), "cswap-stats") == 1);
  CHECK(!contains(server.log(), "terminate"));
  server.stop();
}

TEST_SUITE_END();

}  // namespace
}  // namespace cswap::test
