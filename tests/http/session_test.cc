#include <doctest/doctest.h>

#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "plugin/http_session.h"
#include "tests/http/client.h"
#include "tests/http/exposition.h"

namespace cswap::test {
namespace {

// What the session sends for these bytes, given in pieces of so many; a last reply that closes adds
// "<close>".
std::string served(std::string_view bytes, size_t piece, const HttpLimits& limits = {}) {
  HttpSession session(limits);
  std::string out;
  while (!bytes.empty()) {
    session.receive(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    while (session.state() == HttpState::kReply) {
      const HttpReply reply = session.reply([] { return sample_pool(); });
      out += reply.bytes;
      if (reply.close) return out + "<close>";
    }
  }
  return out;
}

// In one piece; every other way to cut it must give the same.
std::string served(const std::string& bytes) {
  const std::string whole = served(bytes, bytes.size());
  for (const size_t piece : {1u, 2u, 3u, 7u, 64u}) CHECK(served(bytes, piece) == whole);
  return whole;
}

int status_of(const std::string& reply) {
  return reply.starts_with("HTTP/1.") ? std::stoi(reply.substr(9, 3)) : 0;
}

bool closes(const std::string& reply) { return reply.ends_with("<close>"); }

TEST_CASE("both pages have their type, their length and no caching") {
  const std::string metrics = served(get_request("/metrics"));
  CHECK(status_of(metrics) == 200);
  CHECK(metrics.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n") !=
        std::string::npos);
  CHECK(metrics.find("Cache-Control: no-store\r\n") != std::string::npos);
  const std::string body = metrics.substr(metrics.find("\r\n\r\n") + 4);
  CHECK(metrics.find("Content-Length: " + std::to_string(body.size()) + "\r\n") !=
        std::string::npos);
  CHECK_NOTHROW((void)parse_exposition(body));
  const std::string json = served(get_request("/stats.json"));
  CHECK(json.find("Content-Type: application/json\r\n") != std::string::npos);
  CHECK(json.ends_with("}\n"));
}

TEST_CASE("the lock table is plain text, a line for each function that waited") {
  const std::string locks = served(get_request("/locks"));
  CHECK(locks.find("200 OK") != std::string::npos);
  CHECK(locks.find("text/plain; charset=utf-8") != std::string::npos);
  std::istringstream body(locks.substr(locks.find("\r\n\r\n") + 4));
  std::vector<std::string> lines;
  for (std::string line; std::getline(body, line);) {
    std::istringstream words(line);
    lines.emplace_back();
    for (std::string word; words >> word;) lines.back() += word + " ";
  }
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "contended total wait max wait avg wait type caller ");
  CHECK(lines[1] == "2 3.00 us 2.50 us 1.50 us store allocate_all ");
}

TEST_CASE("HEAD has the same head and no body") {
  const std::string get = served(get_request("/metrics"));
  const std::string head = served("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(head == get.substr(0, get.find("\r\n\r\n") + 4));
}

TEST_CASE("the query and a full URL do not matter, the path does") {
  for (const char* target : {"/metrics?", "/metrics?name[]=x&/../y", "http://any.host:1/metrics"}) {
    CAPTURE(target);
    CHECK(status_of(served(get_request(target))) == 200);
  }
  for (const char* target : {"/", "/metric", "/metrics/", "/METRICS", "/x/../metrics", "/../x",
                             "//metrics", "/stats.json/x", "metrics", "*", "http://metrics",
                             "/%6detrics", "/metrics#x", "/metrics;x"}) {
    CAPTURE(target);
    const std::string reply = served(get_request(target));
    CHECK(status_of(reply) == 404);
    CHECK_FALSE(closes(reply));
  }
}

TEST_CASE("other methods are refused with what is allowed, and the connection goes on") {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "BREW"}) {
    CAPTURE(method);
    const std::string request =
        std::string(method) + " /metrics HTTP/1.1\r\nHost: x\r\n" + "Content-Length: 3\r\n\r\nabc";
    const std::string reply = served(request + get_request("/stats.json"));
    CHECK(status_of(reply) == 405);
    CHECK(reply.find("Allow: GET, HEAD\r\n") != std::string::npos);
    CHECK(reply.find("application/json") != std::string::npos);
  }
}

TEST_CASE("requests in one packet are answered in order") {
  const std::string replies =
      served(get_request("/metrics") + get_request("/none") + get_request("/stats.json"));
  const size_t metrics = replies.find("version=0.0.4");
  const size_t none = replies.find("404 Not Found");
  const size_t json = replies.find("application/json");
  CHECK(metrics < none);
  CHECK(none < json);
  CHECK(json != std::string::npos);
}

TEST_CASE("a connection is kept or closed as the version and the client want it") {
  CHECK_FALSE(closes(served(get_request("/metrics"))));
  CHECK(closes(served(get_request("/metrics", "Connection: close\r\n"))));
  const std::string old = served("GET /metrics HTTP/1.0\r\n\r\n");
  CHECK(old.starts_with("HTTP/1.0 200"));
  CHECK(closes(old));
  const std::string kept = served("GET /metrics HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  CHECK_FALSE(closes(kept));
  CHECK(kept.find("Connection: keep-alive\r\n") != std::string::npos);
}

TEST_CASE("malformed requests are refused and end the connection") {
  const std::vector<std::string> bad = {
      "GET /metrics\r\n\r\n",                                 // HTTP/0.9
      "GET /metrics HTTP/1.1\r\n\r\n",                        // no Host
      "GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",  // two
      "GET /metrics HTTP/2.0\r\nHost: x\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "GET  /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /metrics HTTP/1.1\nHost: x\n\n\r\n\r\n",
      "GET /metrics HTTP/1.1\r\nHost : x\r\n\r\n",
      "GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
      "GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
      "GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
      "GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(500, 'r'),
      std::string(200, '\0'),
      "\r\n\r\n",
      "SSH-2.0-OpenSSH_9.2\r\n\r\n"};
  for (const std::string& request : bad) {
    CAPTURE(request);
    const std::string reply = served(request);
    CHECK(status_of(reply) == 400);
    CHECK(reply.find("Connection: close\r\n") != std::string::npos);
    CHECK(closes(reply));
  }
}

TEST_CASE("heads are read up to the limit and not beyond") {
  const HttpLimits limits;
  const std::string start = "GET /metrics HTTP/1.1\r\nHost: x\r\nX: ";
  const std::string fitting = start + std::string(limits.head_bytes - start.size() - 4, 'a');
  CHECK(status_of(served(fitting + "\r\n\r\n", 4096)) == 200);
  CHECK(status_of(served(fitting + "a\r\n\r\n", 4096)) == 431);
  CHECK(status_of(served(fitting + "aa\r\n\r\n", 1)) == 431);
  CHECK(status_of(served(start + std::string(1 << 20, 'a'), 4096)) == 431);
  CHECK(status_of(served("GET /" + std::string(1 << 20, 'a'), 4096)) == 431);
  // The line and the fields count together.
  const std::string half = std::string(limits.head_bytes / 2, 'a');
  const std::string both = "GET /" + half + " HTTP/1.1\r\nHost: x\r\nX: " + half + "\r\n\r\n";
  CHECK(status_of(served(both, 4096)) == 431);
  CHECK(status_of(served(both, both.size())) == 431);
}

TEST_CASE("bodies are skipped up to the limit and refused beyond") {
  const auto with_body = [](size_t bytes) {
    return get_request("/metrics", "Content-Length: " + std::to_string(bytes) + "\r\n");
  };
  const HttpLimits limits;
  const std::string fitting = with_body(limits.body_bytes) + std::string(limits.body_bytes, 'b');
  CHECK(status_of(served(fitting + get_request("/none"), 4096)) == 200);
  CHECK(served(fitting + get_request("/none"), 4096).find("404") != std::string::npos);
  const std::string large = served(with_body(limits.body_bytes + 1));
  CHECK(status_of(large) == 413);
  CHECK(closes(large));
  CHECK(status_of(served(with_body(~size_t{0}))) == 413);
  const std::string chunked = served(get_request("/metrics", "Transfer-Encoding: chunked\r\n") +
                                         "fffffff\r\n" + std::string(100'000, 'c'),
                                     4096);
  CHECK(status_of(chunked) == 411);
  CHECK(closes(chunked));
  CHECK(status_of(served(get_request("/metrics", "Transfer-Encoding: chunked\r\n") +
                         "0\r\n\r\n")) == 411);
  CHECK(status_of(served(
            get_request("/metrics", "Content-Length: 5\r\nExpect: 100-continue\r\n"))) == 417);
}

TEST_CASE("the state tells what a request still lacks") {
  HttpSession session{HttpLimits{}};
  CHECK(session.state() == HttpState::kIdle);
  session.receive("G");
  CHECK(session.state() == HttpState::kHead);
  session.receive("ET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n");
  CHECK(session.state() == HttpState::kBody);
  session.receive("b");
  CHECK(session.state() == HttpState::kBody);
  session.receive("bGE");
  CHECK(session.state() == HttpState::kReply);
  CHECK_FALSE(session.reply([] { return sample_pool(); }).close);
  CHECK(session.state() == HttpState::kHead);
}

TEST_CASE("a failing snapshot is the caller's to handle, and only a page asks for one") {
  const auto failing = []() -> PoolSnapshot { throw std::bad_alloc(); };
  HttpSession session{HttpLimits{}};
  session.receive(get_request("/none") + get_request("/metrics"));
  CHECK(status_of(session.reply(failing).bytes) == 404);
  REQUIRE(session.state() == HttpState::kReply);
  CHECK_THROWS_AS((void)session.reply(failing), std::bad_alloc);
}

}  // namespace
}  // namespace cswap::test
