// Parameters: what is refused, with which message, and what is accepted means the same everywhere.
#include <doctest/doctest.h>

#include "tests/integration/helpers.h"

namespace cswap::test {
namespace {

// Exits with 0 when the parameters are accepted.
Output try_parameters(const Words& parameters) {
  Words command = nbdkit_command({"-U", "-", "--run", "exit 0"}, parameters);
  return run(command, server_environment());
}

struct Refused {
  Words parameters;
  std::string key;
  std::string value;
  std::string accepted;  // part of what the message says is accepted
};

void check_refused(const Refused& refused) {
  const Output output = try_parameters(refused.parameters);
  CAPTURE(refused.key);
  CAPTURE(refused.value);
  CAPTURE(output.err);
  CHECK(output.exit.code == 1);
  CHECK(contains(output.err, refused.key));
  CHECK(contains(output.err, refused.value));
  CHECK(contains(output.err, refused.accepted));
  check_log(output.err);
}

TEST_CASE("a bad size is refused with the value and the rule") {
  const std::string beyond_16t = "17592186048512";
  const std::string values[] = {"1",
                                "511",
                                "512",
                                "4095",
                                "4097",
                                "60K",
                                "65537",
                                "4294967808",
                                "0",
                                "-1",
                                "4Gx",
                                "1e9",
                                "9223372036854775807",
                                "9223372036854775808",
                                "18446744073709551616",
                                beyond_16t,
                                "17T",
                                "G",
                                "0x10000Z"};
  for (const std::string& value : values) {
    check_refused({{"size=" + value}, "size", "'" + value + "'", "multiple of 4096"});
  }
  check_refused({{"size="}, "size", "''", "multiple of 4096"});
}

TEST_CASE("the reason of a refused size is given") {
  check_refused({{"60K"}, "size", "60K", "below 64 KiB"});
  check_refused({{"17T"}, "size", "17T", "above 16 TiB"});
  check_refused({{"65537"}, "size", "65537", "not a multiple of the 4096 byte page"});
}

TEST_CASE("a missing size is asked for") {
  const Output output = try_parameters({"compressor=lz4"});
  CHECK(output.exit.code == 1);
  CHECK(contains(output.err, "size is required"));
}

TEST_CASE("each other bad value is refused with key, value and what is accepted") {
  const Refused table[] = {
      {{"64M", "compressor=gzip"}, "compressor", "'gzip'", "zstd:"},
      {{"64M", "compressor="}, "compressor", "''", "lz4"},
      {{"64M", "compressor=lz4:0"}, "compressor", "'lz4:0'", "lz4:"},
      {{"64M", "compressor=lz4:"}, "compressor", "'lz4:'", "lz4:"},
      {{"64M", "compressor=lz4:65538"}, "compressor", "'lz4:65538'", "lz4:"},
      {{"64M", "compressor=zstd:0"}, "compressor", "'zstd:0'", "zstd:"},
      {{"64M", "compressor=zstd:23"}, "compressor", "'zstd:23'", "zstd:"},
      {{"64M", "compressor=zstd:1x"}, "compressor", "'zstd:1x'", "zstd:"},
      {{"64M", "compressor=none:1"}, "compressor", "'none:1'", "none"},
      {{"64M", "compressor=LZ4"}, "compressor", "'LZ4'", "lz4"},
      {{"64M", "same_filled=maybe"}, "same_filled", "'maybe'", "on or off"},
      {{"64M", "same_filled="}, "same_filled", "''", "on or off"},
      {{"64M", "checksum=2"}, "checksum", "'2'", "on or off"},
      {{"64M", "mem_limit=101%"}, "mem_limit", "'101%'", "1% to 100%"},
      {{"64M", "mem_limit=0%"}, "mem_limit", "'0%'", "1% to 100%"},
      {{"64M", "mem_limit=%"}, "mem_limit", "'%'", "1% to 100%"},
      {{"64M", "mem_limit=-1"}, "mem_limit", "'-1'", "a size"},
      {{"64M", "mem_limit=lots"}, "mem_limit", "'lots'", "a size"},
      {{"64M", "mem_limit=4095"}, "mem_limit", "'4095'", "64K"},
      {{"64M", "accept_threshold=0"}, "accept_threshold", "'0'", "1 to 100"},
      {{"64M", "accept_threshold=101"}, "accept_threshold", "'101'", "1 to 100"},
      {{"64M", "accept_threshold=90%"}, "accept_threshold", "'90%'", "1 to 100"},
      {{"64M", "alloc=local"}, "alloc", "'local'", "cluster or global"},
      {{"64M", "alloc="}, "alloc", "''", "cluster or global"},
      {{"64M", "alloc=Global"}, "alloc", "'Global'", "cluster or global"},
      {{"64M", "alloc=cluster "}, "alloc", "'cluster '", "cluster or global"},
      {{"64M", "batch=some"}, "batch", "'some'", "on or off"},
      {{"64M", "batch="}, "batch", "''", "on or off"},
      {{"64M", "batch=ON"}, "batch", "'ON'", "on or off"},
      {{"64M", "free=on"}, "free", "'on'", "async or sync"},
      {{"64M", "free="}, "free", "''", "async or sync"},
      {{"64M", "free=Sync"}, "free", "'Sync'", "async or sync"},
      {{"64M", "free=asynchronous"}, "free", "'asynchronous'", "async or sync"},
      {{"64M", "mlock=maybe"}, "mlock", "'maybe'", "auto, on or off"},
      {{"64M", "stats="}, "stats", "stats=", "unix:PATH"},
      {{"64M", "stats=unix:"}, "stats", "unix:", "unix:PATH"},
      {{"64M", "stats=localhost"}, "stats", "localhost", "HOST:PORT"},
      {{"64M", "stats=localhost:0"}, "stats", "localhost:0", "HOST:PORT"},
      {{"64M", "stats=localhost:65536"}, "stats", "localhost:65536", "HOST:PORT"},
      {{"64M", "stats=0.0.0.0:9"}, "stats", "0.0.0.0:9", "stats_public=on"},
      {{"64M", "stats=unix:/" + std::string(120, 'x')}, "stats", "xxx", "107"},
      {{"64M", "stats_public=perhaps"}, "stats_public", "'perhaps'", "on or off"},
      {{"64M", "colour=blue"}, "colour", "'blue'", "mem_limit"},
      {{"64M", "Batch=on"}, "Batch", "'on'", "alloc, batch, free"},
  };
  for (const Refused& refused : table) check_refused(refused);
}

TEST_CASE("a parameter that is given twice is refused") {
  check_refused({{"4G", "4G"}, "size", "'4G'", "once"});
  check_refused({{"4G", "size=1G"}, "size", "'1G'", "once"});
  check_refused({{"4G", "compressor=lz4", "compressor=zstd"}, "compressor", "'zstd'", "once"});
  check_refused({{"4G", "alloc=global", "alloc=global"}, "alloc", "'global'", "once"});
  check_refused({{"4G", "batch=off", "batch=on"}, "batch", "'on'", "once"});
  check_refused({{"4G", "free=sync", "free=async"}, "free", "'async'", "once"});
  check_refused({{"4G", "mlock=off", "mlock=off"}, "mlock", "'off'", "once"});
}

TEST_CASE("every accepted spelling of the other parameters is accepted") {
  const Words spellings = {"compressor=lz4:1",
                           "compressor=lz4:65537",
                           "compressor=zstd:22",
                           "compressor=zstd:-7",
                           "compressor=none",
                           "same_filled=off",
                           "alloc=cluster",
                           "alloc=global",
                           "batch=on",
                           "batch=off",
                           "free=async",
                           "free=sync",
                           "checksum=on",
                           "mem_limit=0",
                           "mem_limit=64K",
                           "mem_limit=1%",
                           "mem_limit=100%",
                           "accept_threshold=1",
                           "accept_threshold=100",
                           "mlock=off",
                           "stats_public=on"};
  for (const std::string& spelling : spellings) {
    CAPTURE(spelling);
    ServerOptions options;
    options.parameters = {"64K", spelling};
    NbdServer server(options);
    CHECK(NbdClient(server.socket()).size() == 64 * kKiB);
    server.stop();
  }
}

TEST_CASE("the statistics name the switches that the server runs with") {
  const Words defaults = {"\"alloc\":\"cluster\"", "\"batch\":\"on\"", "\"free\":\"async\""};
  const Words old_ways = {"\"alloc\":\"global\"", "\"batch\":\"off\"", "\"free\":\"sync\""};
  for (const bool old : {false, true}) {
    ServerOptions options;
    if (old) options.parameters = {"64M", "alloc=global", "batch=off", "free=sync"};
    NbdServer server(options);
    {
      NbdClient client(server.socket());
      const Bytes content = random_bytes(64 * kKiB, 1);
      REQUIRE(client.write(0, content) == 0);
      CHECK(client.read(0, content.size()) == content);
    }
    const std::string json = server.stats().json();
    CAPTURE(json);
    for (const std::string& text : old ? old_ways : defaults) CHECK(contains(json, text));
    const Words threads = thread_names(server.pid());
    CHECK(std::ranges::count(threads, "cswap-reclaim") == (old ? 0 : 1));
    server.stop();
  }
}

struct Accepted {
  std::string size;
  uint64_t bytes;
};

TEST_CASE("an accepted size is the same to the client and in the statistics, to its last byte") {
  const Accepted table[] = {{"64K", 64 * kKiB},
                            {"68K", 68 * kKiB},
                            {"2097152", 2 * kMiB},
                            {"4g", 4 * kGiB},
                            {"4294971392", 4 * kGiB + 4096},
                            {"1T", 1024 * kGiB},
                            {"8T", 8192 * kGiB},
                            {"16T", 16384 * kGiB}};
  for (const auto& [size, bytes] : table) {
    // The thread sanitizer leaves too little address space for the arena.
    if (kThreadSanitizer && bytes > 64 * kGiB) continue;
    CAPTURE(size);
    ServerOptions options;
    options.parameters = {size};
    NbdServer server(options);
    {
      NbdClient client(server.socket());
      CHECK(client.size() == bytes);
      CHECK(server.stats()["size"] == bytes);
      for (const uint64_t at : {uint64_t{0}, bytes - kPageBytes}) {
        const Bytes block = random_bytes(kPageBytes, at);
        CHECK(client.write(at, block) == 0);
        CHECK(client.read(at, kPageBytes) == block);
      }
      const Bytes last = random_bytes(1, 1);
      CHECK(client.write(bytes - 1, last) == 0);
      CHECK(client.read(bytes - 1, 1) == last);
      CHECK(client.write(bytes, last) == ENOSPC);
      CHECK(client.write(bytes - 1, random_bytes(2, 2)) == ENOSPC);
      Bytes beyond(2);
      CHECK(client.read(bytes - 1, beyond) == EINVAL);
      CHECK(client.read(bytes - 1, 1) == last);
    }
    server.stop();
  }
}

uint64_t idle_rss_kib(const std::string& size) {
  ServerOptions options;
  options.parameters = {size};
  NbdServer server(options);
  const uint64_t kib = server.status("VmRSS");
  server.stop();
  return kib;
}

TEST_CASE("memory of an idle server does not grow with the size of the device" *
          doctest::skip(kThreadSanitizer)) {
  const uint64_t small = idle_rss_kib("1M");
  const uint64_t large = idle_rss_kib("16T");
  CHECK(large < small + 64 * 1024);
}

TEST_CASE("the size is right on the first connection made when the socket appears") {
  for (uint64_t i = 0; i < scaled(100, 10); ++i) {
    ServerOptions options;
    options.parameters = {"64K"};
    options.stats = false;
    NbdServer server(options);
    NbdClient client(server.socket());
    REQUIRE(client.size() == 64 * kKiB);
    REQUIRE(client.read(0, 64 * kKiB) == Bytes(64 * kKiB));
    server.kill();
  }
}

TEST_CASE("--dump-plugin names version, compressors, switches and page size, and binds nothing") {
  const ScratchDir dir;
  const Output output = run_nbdkit({"--dump-plugin"}, {});
  CHECK(output.exit.clean());
  for (const char* line :
       {"name=cswap\n", "cswap_version=", "cswap_compressors=lz4 zstd none\n",
        "cswap_alloc=cluster global\n", "cswap_batch=on off\n", "cswap_free=async sync\n",
        "cswap_page_size=4096\n", "cswap_min_size=65536\n", "cswap_max_size=17592186044416\n",
        "thread_model=parallel\n", "has_pread=1\n", "has_extents=1\n", "magic_config_key=size\n"}) {
    CAPTURE(std::string(line));
    CHECK(contains(output.out, line));
  }
}

TEST_CASE("--help names every parameter") {
  const Output output = run_nbdkit({"--help"}, {});
  CHECK(output.exit.clean());
  for (const char* key : {"size=", "compressor=", "same_filled=", "mem_limit=", "accept_threshold=",
                          "alloc=cluster|global", "batch=on|off", "free=async|sync",
                          "checksum=", "stats=", "stats_public=", "mlock="}) {
    CAPTURE(std::string(key));
    CHECK(contains(output.out, key));
  }
}

}  // namespace
}  // namespace cswap::test
