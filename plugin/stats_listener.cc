#include "plugin/stats_listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

namespace cswap {
namespace {

// Long enough that a crowd of clients does not make the kernel drop or refuse an honest one.
constexpr int kBacklog = 1024;
// More addresses than this behind one name are a mistake.
constexpr size_t kMaxAddresses = 8;

std::string error_text(int error) { return std::generic_category().message(error); }

UniqueFd make_socket(int family) {
  return UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

sockaddr_un unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), kMaxSocketPathBytes));
  return address;
}

// 0 when somebody listens at the path, else the error of trying. A full backlog is somebody too.
int probe(const std::string& path) {
  const UniqueFd fd = make_socket(AF_UNIX);
  if (!fd.valid()) return errno;
  const sockaddr_un address = unix_address(path);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    return 0;
  }
  return errno == EAGAIN ? 0 : errno;
}

// Makes the path free for a new socket file, or says why it must not be.
std::string clear_stale(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) {
    return errno == ENOENT ? "" : error_text(errno);
  }
  if (!S_ISSOCK(st.st_mode)) return "there is a file at this path that is not a socket";
  const int error = probe(path);
  if (error == 0) return "another process serves at this path";
  if (error == ENOENT) return "";
  if (error != ECONNREFUSED) return "the socket at this path: " + error_text(error);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return "cannot replace the stale socket: " + error_text(errno);
  }
  return "";
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof in);
    return ntohl(in.sin_addr.s_addr) >> 24 == 127;
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 in6{};
    std::memcpy(&in6, address, sizeof in6);
    return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
  }
  return false;
}

uint16_t bound_port(int fd) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return 0;
  if (storage.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
}

// The socket, or errno and no socket.
UniqueFd listen_at(const addrinfo& at) {
  UniqueFd fd = make_socket(at.ai_family);
  if (!fd.valid()) return fd;
  const int on = 1;
  // A restart must not wait for the connections of the run before it to leave TIME_WAIT.
  bool ok = ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0;
  if (at.ai_family == AF_INET6) {
    // [::]:PORT is IPv6 only, so that what is listened on is what was named.
    ok = ok && ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0;
  }
  ok = ok && ::bind(fd.get(), at.ai_addr, at.ai_addrlen) == 0;
  ok = ok && ::listen(fd.get(), kBacklog) == 0;
  if (!ok) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

std::string resolve(const StatsEndpoint& endpoint, Addresses& result) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int error = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list);
  if (error != 0) return std::string("cannot resolve the host: ") + ::gai_strerror(error);
  result.reset(list);
  return "";
}

bool same_address(const addrinfo& a, const addrinfo& b) {
  return a.ai_addrlen == b.ai_addrlen && std::memcmp(a.ai_addr, b.ai_addr, a.ai_addrlen) == 0;
}

}  // namespace

std::string StatsListener::open(const StatsEndpoint& endpoint, bool allow_public) {
  const std::string wrong = endpoint.kind == StatsEndpoint::Kind::kUnix
                                ? open_unix(endpoint.path)
                                : open_tcp(endpoint, allow_public);
  if (wrong.empty()) return "";
  sockets_.clear();
  return "stats=" + endpoint.text() + ": " + wrong;
}

std::string StatsListener::open_unix(const std::string& path) {
  if (path.empty() || path.front() != '/') return "the path is not absolute";
  if (path.size() > kMaxSocketPathBytes) {
    return "the absolute path has " + std::to_string(path.size()) + " bytes, a socket's may have " +
           std::to_string(kMaxSocketPathBytes);
  }
  UniqueFd fd = make_socket(AF_UNIX);
  if (!fd.valid()) return error_text(errno);
  // Linux gives the socket file the mode of the socket's own inode, so it is never open to others,
  // not even between bind and a chmod.
  if (::fchmod(fd.get(), 0600) != 0) return error_text(errno);
  const sockaddr_un address = unix_address(path);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (::bind(fd.get(), generic, sizeof address) != 0) {
    if (errno != EADDRINUSE) return error_text(errno);
    std::string wrong = clear_stale(path);
    if (!wrong.empty()) return wrong;
    if (::bind(fd.get(), generic, sizeof address) != 0) return error_text(errno);
  }
  path_ = path;
  if (!identify(path, file_) || ::listen(fd.get(), kBacklog) != 0) {
    const int error = errno;
    ::unlink(path.c_str());
    path_.clear();
    return error_text(error);
  }
  sockets_.push_back(std::move(fd));
  return "";
}

std::string StatsListener::open_tcp(const StatsEndpoint& endpoint, bool allow_public) {
  Addresses addresses(nullptr, &::freeaddrinfo);
  std::string wrong = resolve(endpoint, addresses);
  if (!wrong.empty()) return wrong;
  std::vector<const addrinfo*> distinct;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    if (!allow_public && !is_loopback(at->ai_addr)) {
      return "the host is not loopback, and the statistics have no access control; "
             "stats_public=on serves them on any address";
    }
    const bool known = std::any_of(distinct.begin(), distinct.end(), [at](const addrinfo* other) {
      return same_address(*at, *other);
    });
    if (!known) distinct.push_back(at);
  }
  if (distinct.size() > kMaxAddresses) return "the host has too many addresses";
  int missing_family = 0;
  for (const addrinfo* at : distinct) {
    UniqueFd fd = listen_at(*at);
    if (fd.valid()) {
      if (port_ == 0) port_ = bound_port(fd.get());
      sockets_.push_back(std::move(fd));
    } else if (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL) {
      missing_family = errno;
    } else {
      return error_text(errno);
    }
  }
  return sockets_.empty() ? error_text(missing_family) : "";
}

bool StatsListener::identify(const std::string& path, FileIdentity& identity) {
  struct statx st {};
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &st) !=
      0) {
    return false;
  }
  identity.device = makedev(st.stx_dev_major, st.stx_dev_minor);
  identity.inode = st.stx_ino;
  const bool has_birth = (st.stx_mask & STATX_BTIME) != 0;
  identity.birth_s = has_birth ? st.stx_btime.tv_sec : 0;
  identity.birth_ns = has_birth ? st.stx_btime.tv_nsec : 0;
  return true;
}

void StatsListener::remove_file() {
  if (path_.empty()) return;
  FileIdentity now;
  if (identify(path_, now) && now == file_) ::unlink(path_.c_str());
  path_.clear();
}

void StatsListener::remove_file_unless_served() {
  sockets_.clear();
  if (path_.empty()) return;
  if (probe(path_) == ECONNREFUSED) remove_file();
  path_.clear();
}

}  // namespace cswap
