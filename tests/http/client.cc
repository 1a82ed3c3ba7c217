#include "tests/http/client.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace cswap::test {
namespace {

UniqueFd patient_socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(fd.valid());
  timeval patience{};
  patience.tv_sec = kPatience.count();
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  return fd;
}

void connect_to(const UniqueFd& fd, const void* address, socklen_t bytes) {
  const int status = ::connect(fd.get(), static_cast<const sockaddr*>(address), bytes);
  REQUIRE_MESSAGE(status == 0, std::strerror(errno));
}

}  // namespace

Client::Client(UniqueFd fd) : fd_(std::move(fd)) {}

Client Client::unconnected() { return Client(patient_socket(AF_UNIX)); }

void Client::connect_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), kMaxSocketPathBytes));
  connect_to(fd_, &address, sizeof address);
}

Client Client::to_unix(const std::string& path) {
  Client client = unconnected();
  client.connect_unix(path);
  return client;
}

Client Client::to_loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Client client(patient_socket(AF_INET));
  connect_to(client.fd_, &address, sizeof address);
  return client;
}

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool Client::fill() {
  char buffer[16 * 1024];
  const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
  if (n <= 0) return false;
  received_.append(buffer, static_cast<size_t>(n));
  return true;
}

Reply Client::receive(bool head_only) {
  Reply reply;
  size_t end = 0;
  while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
    if (!fill()) return reply;
  }
  const std::string head = received_.substr(0, end + 2);
  received_.erase(0, end + 4);
  const size_t line_end = head.find("\r\n");
  const int status = std::atoi(head.substr(head.find(' ') + 1, 3).c_str());
  for (size_t at = line_end + 2; at < head.size();) {
    const size_t next = head.find("\r\n", at);
    const size_t colon = head.find(": ", at);
    REQUIRE(colon < next);
    std::string name = head.substr(at, colon - at);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    CHECK(reply.fields.emplace(name, head.substr(colon + 2, next - colon - 2)).second);
    at = next + 2;
  }
  REQUIRE(reply.fields.contains("content-length"));
  const size_t bytes = std::stoul(reply.fields.at("content-length"));
  while (!head_only && received_.size() < bytes) {
    if (!fill()) return {};
  }
  if (!head_only) {
    reply.body = received_.substr(0, bytes);
    received_.erase(0, bytes);
  }
  reply.status = status;
  return reply;
}

Reply Client::get(const std::string& target) {
  return send(get_request(target)) ? receive() : Reply{};
}

bool Client::closed_by_server() {
  char buffer[16 * 1024];
  for (;;) {
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n == 0) return true;
    if (n < 0) return errno == ECONNRESET || errno == EPIPE;
  }
}

namespace {

bool closes_within(int fd, std::chrono::milliseconds time) {
  pollfd poll_fd{fd, POLLRDHUP, 0};
  return ::poll(&poll_fd, 1, static_cast<int>(time.count())) == 1;
}

}  // namespace

bool Client::is_closed() const { return closes_within(fd_.get(), std::chrono::milliseconds(0)); }

bool Client::wait_closed() const { return closes_within(fd_.get(), kPatience); }

bool Client::readable_within(std::chrono::milliseconds time) const {
  pollfd poll_fd{fd_.get(), POLLIN, 0};
  return ::poll(&poll_fd, 1, static_cast<int>(time.count())) == 1;
}

void Client::finish_sending() { ::shutdown(fd_.get(), SHUT_WR); }

TempDir::TempDir() {
  const char* base = std::getenv("TMPDIR");
  std::string name = std::string(base != nullptr ? base : "/tmp") + "/cswap-http-XXXXXX";
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

PoolSnapshot sample_pool(const std::vector<std::string>& names) {
  PoolSnapshot pool;
  pool.compressor = "lz4";
  pool.mem_used_total = 4096;
  pool.locks.resize(1);
  pool.locks[0].name = "store";
  pool.locks[0].acquired = 9;
  pool.locks[0].waits = {"", 2, 3'000, 2'500, 500};
  pool.locks[0].callers = {{"allocate_all", 2, 3'000, 2'500, 500}};
  for (const std::string& name : names) {
    pool.tenants.emplace_back();
    pool.tenants.back().name = name;
    pool.tenants.back().stored_pages = 7;
    pool.tenants.back().latency[0][0].buckets[0] = 3;
  }
  return pool;
}

StatsEndpoint unix_endpoint(const std::string& path) {
  StatsEndpoint endpoint;
  endpoint.kind = StatsEndpoint::Kind::kUnix;
  endpoint.path = path;
  return endpoint;
}

StatsEndpoint tcp_endpoint(const std::string& host, uint16_t port) {
  StatsEndpoint endpoint;
  endpoint.kind = StatsEndpoint::Kind::kTcp;
  endpoint.host = host;
  endpoint.port = port;
  return endpoint;
}

UnixServer::UnixServer(const StatsLimits& limits, std::function<PoolSnapshot()> snapshot)
    : path_(dir_.path("s.sock")),
      server_(unix_endpoint(path_), StatsHooks{std::move(snapshot), {}, {}}, limits) {
  REQUIRE(server_.bind(false) == "");
  REQUIRE(server_.start() == "");
}

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all))) - 1;
}

}  // namespace cswap::test
