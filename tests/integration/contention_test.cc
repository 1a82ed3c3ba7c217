// Many connections at a few pages.
#include <doctest/doctest.h>

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "tests/integration/helpers.h"

namespace cswap::test {
namespace {

constexpr uint64_t kConnections = 16;
constexpr uint64_t kPages = 8;

// A page whose compressed length depends on who wrote it and when, and whose first word tells.
Bytes value_of(uint64_t page, uint64_t writer, uint64_t generation) {
  const uint64_t tag = page << 48 | writer << 40 | generation;
  const size_t random_length = 8 * (tag * 0x9e3779b97f4a7c15 >> 55);  // up to 4088
  Bytes content = random_bytes(8 + random_length, tag);
  content.resize(kPageBytes, std::byte(generation));
  std::memcpy(content.data(), &tag, sizeof tag);
  return content;
}

void check_value(uint64_t page, const Bytes& content) {
  if (is_zero(content)) return;
  uint64_t tag;
  std::memcpy(&tag, content.data(), sizeof tag);
  if (tag >> 48 == page && content == value_of(page, tag >> 40 & 0xff, tag & 0xffffffff)) return;
  throw std::runtime_error("page " + std::to_string(page) + " is no value that was written");
}

void one_connection(const std::string& socket, uint64_t writer, uint64_t writes, uint64_t seed) {
  NbdClient client(socket);
  Random random(seed);
  for (uint64_t i = 1; i <= writes; ++i) {
    const uint64_t page = random.below(kPages);
    if (client.write(page * kPageBytes, value_of(page, writer, i)) != 0) {
      throw std::runtime_error("a write failed");
    }
    if (i % 4 == 0) check_value(page, client.read(page * kPageBytes, kPageBytes));
    if (i % 16 == 0 && client.trim(random.below(kPages) * kPageBytes, kPageBytes) != 0) {
      throw std::runtime_error("a trim failed");
    }
  }
}

// Runs it for each writer in a thread of its own; none may throw.
template <typename Writer>
void run_writers(const Writer& write) {
  std::vector<std::thread> threads;
  std::mutex mutex;
  Words failures;
  for (uint64_t writer = 0; writer < kConnections; ++writer) {
    threads.emplace_back([&, writer] {
      try {
        write(writer);
      } catch (const std::exception& error) {
        const std::lock_guard guard(mutex);
        failures.push_back(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == Words());
}

void contend(const Words& switches, uint64_t writes) {
  ServerOptions options;
  options.nbdkit = {"-t", "16"};
  options.parameters = {"64K"};
  options.parameters.insert(options.parameters.end(), switches.begin(), switches.end());
  NbdServer server(options);
  const uint64_t seed = test_seed();
  run_writers(
      [&](uint64_t writer) { one_connection(server.socket(), writer, writes, seed + writer); });
  {
    NbdClient client(server.socket());
    for (uint64_t page = 0; page < kPages; ++page) {
      check_value(page, client.read(page * kPageBytes, kPageBytes));
    }
    REQUIRE(client.trim(0, 64 * kKiB) == 0);
  }
  server.stats_when("no objects", [](const Stats& s) { return s["pool_total_size"] == 0; });
  const Stats stats = server.consistent_stats();
  for (const char* gauge : {"stored_pages", "same_pages", "huge_pages", "compr_data_size",
                            "free_waiting_objects", "decompress_fail"}) {
    CAPTURE(std::string(gauge));
    CHECK(stats[gauge] == 0);
  }
  server.stop();
}

constexpr uint64_t kWrites = kThreadSanitizer ? 150 : scaled(4000, 500);

TEST_CASE("sixteen connections that write to eight pages lose none and leak nothing, lz4") {
  contend({}, kWrites);
}

TEST_CASE("sixteen connections that write to eight pages lose none and leak nothing, zstd") {
  contend({"compressor=zstd", "checksum=on"}, kWrites);
}

TEST_CASE("sixteen connections that write to eight pages lose none and leak nothing, at a limit") {
  contend({"mem_limit=512K", "compressor=none"}, kWrites);
}

// Writes only its own 16th of each page, and must always find it there again.
void keep_a_part(const std::string& socket, uint64_t writer, uint64_t writes) {
  constexpr uint64_t kPart = kPageBytes / kConnections;
  NbdClient client(socket);
  std::vector<Bytes> parts(kPages, Bytes(kPart));
  Random random(writer);
  for (uint64_t i = 0; i < writes; ++i) {
    const uint64_t page = random.below(kPages);
    const uint64_t at = page * kPageBytes + writer * kPart;
    if (client.read(at, kPart) != parts[page]) throw std::runtime_error("a part was lost");
    parts[page] = random_bytes(kPart, random());
    if (client.write(at, parts[page]) != 0) throw std::runtime_error("a write failed");
  }
  for (uint64_t page = 0; page < kPages; ++page) {
    if (client.read(page * kPageBytes + writer * kPart, kPart) != parts[page]) {
      throw std::runtime_error("a part was lost in the end");
    }
  }
}

TEST_CASE("sixteen connections that each write a part of the same pages lose none") {
  for (const char* compressor : {"compressor=lz4", "compressor=none"}) {
    ServerOptions options;
    options.parameters = {"64K", compressor};
    NbdServer server(options);
    run_writers([&](uint64_t writer) { keep_a_part(server.socket(), writer, kWrites); });
    CHECK(server.stats()["stored_pages"] == kPages);
    server.stop();
  }
}

}  // namespace
}  // namespace cswap::test
