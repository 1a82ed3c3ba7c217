// One NBD connection through libnbd, for tests.
#pragma once

#include <libnbd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cswap::test {

struct Extent {
  uint64_t offset = 0;
  uint64_t length = 0;
  bool hole = false;
};

// Requests return 0 or the errno that the server sent; a lost connection is one too (ENOTCONN or
// what the socket said). For one thread.
class NbdClient {
 public:
  // Connects, or throws std::runtime_error with libnbd's message.
  explicit NbdClient(const std::string& socket_path, const std::string& export_name = "");
  // A handle with base:allocation asked for, not connected.
  static NbdClient unconnected();

  int read(uint64_t offset, std::span<std::byte> to);
  int write(uint64_t offset, std::span<const std::byte> from, uint32_t flags = 0);
  int zero(uint64_t offset, uint64_t length, uint32_t flags = 0);
  int trim(uint64_t offset, uint64_t length);
  int cache(uint64_t offset, uint64_t length);
  int flush();
  int extents(uint64_t offset, uint64_t length, std::vector<Extent>* extents, uint32_t flags = 0);
  // For tests that do not expect an error: throws it.
  std::vector<std::byte> read(uint64_t offset, size_t length);

  [[nodiscard]] uint64_t size() const;
  [[nodiscard]] nbd_handle* handle() const { return handle_.get(); }

 private:
  struct Close {
    void operator()(nbd_handle* handle) const {
      if (nbd_aio_is_ready(handle) == 1) nbd_shutdown(handle, 0);
      nbd_close(handle);
    }
  };

  NbdClient();

  std::unique_ptr<nbd_handle, Close> handle_;
};

// Collects what an extent callback gets. To be passed as its user_data.
struct ExtentCollector {
  std::vector<Extent> extents;
  static int add(void* self, const char* context, uint64_t offset, uint32_t* entries, size_t count,
                 int* error);
};

}  // namespace cswap::test
