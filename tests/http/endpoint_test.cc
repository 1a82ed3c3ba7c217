#include <doctest/doctest.h>

#include <string>

#include "plugin/stats_endpoint.h"

namespace cswap::test {
namespace {

TEST_CASE("the forms of `stats` that are accepted") {
  std::string error;
  const auto parsed = [&error](const std::string& value) {
    const auto endpoint = parse_stats_endpoint(value, error);
    REQUIRE_MESSAGE(endpoint, error);
    return *endpoint;
  };
  CHECK(parsed("unix:/run/x.sock").path == "/run/x.sock");
  CHECK(parsed("unix:relative").path == "relative");
  CHECK(parsed("unix:/a:b c%#?+").path == "/a:b c%#?+");
  CHECK(parsed("unix:/" + std::string(106, 'x')).path.size() == 107);
  CHECK(parsed("127.0.0.1:9100").host == "127.0.0.1");
  CHECK(parsed("127.0.0.1:9100").port == 9100);
  CHECK(parsed("[::1]:1").host == "::1");
  CHECK(parsed("localhost:65535").port == 65535);
  for (const char* value : {"unix:/run/x.sock", "127.0.0.1:9100", "[::1]:9100", "localhost:9100"}) {
    CHECK(parsed(value).text() == value);
  }
}

TEST_CASE("any other value of `stats` is refused with the key, the value and what is accepted") {
  for (const std::string value : {"",
                                  "unix",
                                  "unix:",
                                  "9100",
                                  ":9100",
                                  "localhost",
                                  "localhost:",
                                  "localhost:0",
                                  "localhost:65536",
                                  "localhost:-1",
                                  "localhost:+1",
                                  "localhost: 1",
                                  "localhost:1 ",
                                  "localhost:9100x",
                                  "localhost:99999999999999999999",
                                  "::1:9100",
                                  "[::1]",
                                  "[::1:9100",
                                  "::1]:9100",
                                  "[]:9100",
                                  "[127.0.0.1]:9100",
                                  "[::1%lo]:9100",
                                  "[fe80::g]:1",
                                  "127.1:9100",
                                  "256.0.0.1:9100",
                                  "127.0.0.1.1:9100",
                                  "http://localhost:9100",
                                  "local host:9100",
                                  "localhost\n:9100",
                                  "*:9100",
                                  "user@localhost:9100",
                                  "Unix:/x"}) {
    CAPTURE(value);
    std::string error;
    CHECK_FALSE(parse_stats_endpoint(value, error));
    CHECK(error.find("stats=" + value + ": ") == 0);
    CHECK(error.find("unix:PATH") != std::string::npos);
    CHECK(error.find("HOST:PORT") != std::string::npos);
  }
  for (const std::string& value : {"unix:/" + std::string(107, 'x'), std::string("unix:/a\0b", 9),
                                   std::string(300, 'x') + ":1", std::string("[::1\0]:1", 8)}) {
    std::string error;
    CHECK_FALSE(parse_stats_endpoint(value, error));
  }
}

}  // namespace
}  // namespace cswap::test
