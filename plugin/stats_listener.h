// The listening sockets of the statistics endpoint, and the socket file's life.
//
// Opened before nbdkit forks, so that a port in use or a bad path is told to the user while there
// is a terminal; the process that goes on after the fork serves them. The descriptors exist in both
// processes for a while, so this class never takes a socket file away by itself: see the two
// remove_ functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plugin/stats_endpoint.h"
#include "plugin/unique_fd.h"

namespace cswap {

// Not thread safe. The destructor closes the descriptors and leaves the socket file alone.
class StatsListener {
 public:
  // Opens and listens; at most once. Returns "" or a message that names the parameter and its
  // value, and then holds nothing and has changed nothing in the file system.
  //
  // unix: the file has mode 0600. A socket file that nobody listens on is replaced; one in use, or
  // any other kind of file, is refused and untouched.
  // TCP: every address that the host has must be loopback, unless allow_public; all are listened
  // on, except those of a family that this host does not have.
  [[nodiscard]] std::string open(const StatsEndpoint& endpoint, bool allow_public);

  // Takes the listening descriptors, non-blocking and close-on-exec, one per address.
  [[nodiscard]] std::vector<UniqueFd> take_sockets() { return std::move(sockets_); }

  // The port listened on, 0 for a unix socket.
  [[nodiscard]] uint16_t port() const { return port_; }

  // For the process that served. Removes the socket file if it is still the one made here. To be
  // called while the socket still listens: then nobody takes the file for a stale one in between.
  void remove_file();

  // For a process that opened and never served. Closes the descriptors, and removes the socket file
  // if it is still the one made here and no other process, such as a forked child, listens on it.
  void remove_file_unless_served();

 private:
  // Which file it is. The birth time tells a file from a later one that got the same inode number.
  struct FileIdentity {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t birth_s = 0;
    uint32_t birth_ns = 0;
    bool operator==(const FileIdentity&) const = default;
  };

  static bool identify(const std::string& path, FileIdentity& identity);
  [[nodiscard]] std::string open_unix(const std::string& path);
  [[nodiscard]] std::string open_tcp(const StatsEndpoint& endpoint, bool allow_public);

  std::vector<UniqueFd> sockets_;
  uint16_t port_ = 0;
  std::string path_;  // of the socket file made here, empty for none
  FileIdentity file_;
};

}  // namespace cswap
