// A connection to an NBD server whose device is filled with real pages.
#pragma once

#include <libnbd.h>

#include "tests/bench/bench.h"

namespace cswap::bench {

class NbdClient {
 public:
  explicit NbdClient(const std::string& uri) : nbd_(nbd_create()) {
    if (nbd_ == nullptr || nbd_connect_uri(nbd_, uri.c_str()) != 0) fail_nbd();
    const int64_t bytes = nbd_get_size(nbd_);
    if (bytes < 0) fail_nbd();
    bytes_ = static_cast<uint64_t>(bytes);
  }
  NbdClient(const NbdClient&) = delete;
  NbdClient& operator=(const NbdClient&) = delete;
  ~NbdClient() {
    nbd_shutdown(nbd_, 0);
    nbd_close(nbd_);
  }

  [[noreturn]] static void fail_nbd() { fail(std::string("nbd: ") + nbd_get_error()); }
  static void check_answer(int error) {
    if (error != 0) fail("nbd: the server answered with error " + std::to_string(error));
  }

  [[nodiscard]] nbd_handle* handle() const { return nbd_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

  // Writes the first `end` bytes once.
  void fill(uint64_t end, Random& random) const {
    for (uint64_t at = 0; at < end; at += kFillBytes) {
      const size_t bytes = std::min<uint64_t>(kFillBytes, end - at);
      const auto data = corpus_run(random(), bytes / kPageBytes);
      if (nbd_pwrite(nbd_, data.data(), data.size(), at, 0) != 0) fail_nbd();
    }
  }

 private:
  static constexpr size_t kFillBytes = 256 << 10;

  nbd_handle* const nbd_;
  uint64_t bytes_ = 0;
};

}  // namespace cswap::bench
