// One asynchronous NBD request, and a connection with several of them in flight.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/nbd_client.h"

namespace cswap::test {

enum class Kind { kRead, kWrite, kZero, kTrim, kCache, kFlush, kExtents };
[[nodiscard]] const char* kind_name(Kind kind);

struct Request {
  Kind kind = Kind::kFlush;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint32_t flags = 0;
  std::vector<std::byte> data;  // to write, or read
  ExtentCollector found;        // by kExtents
  uint64_t note = 0;            // the submitter's own
  int64_t cookie = 0;

  [[nodiscard]] uint64_t end() const { return offset + length; }
  [[nodiscard]] bool overlaps(uint64_t from, uint64_t to) const {
    return offset < to && from < end();
  }
  [[nodiscard]] std::string text() const;
};

// Keeps up to `depth` requests in flight, no two of which overlap: so what each must find, or leave
// behind, is certain. For one thread; throws what goes wrong.
class Pipeline {
 public:
  // Called with a finished request and the errno it ended with.
  using Finish = std::function<void(Request&, int error)>;

  Pipeline(const std::string& socket_path, size_t depth, Finish finish);

  // Waits until nothing in flight overlaps the range and there is room for one request more.
  void make_room(uint64_t from, uint64_t to);
  void submit(std::unique_ptr<Request> request);
  // Waits until nothing is in flight.
  void drain();

 private:
  void reap();
  // The errno of a finished request, or -1.
  int outcome(const Request& request);

  NbdClient client_;
  const size_t depth_;
  const Finish finish_;
  std::vector<std::unique_ptr<Request>> in_flight_;
};

}  // namespace cswap::test
