// The HTTP of a connection: any bytes, in pieces of any size, give well-formed replies and an end.
// The first byte of the input chooses the size of the pieces, and whether the limits are tiny.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "plugin/http_session.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using cswap::HttpState;
  if (size == 0) return 0;
  cswap::HttpLimits limits;
  if (data[0] >= 128) limits = {.head_bytes = 64, .body_bytes = 16};
  const size_t piece = data[0] % 128 == 0 ? size : data[0] % 128;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);

  static const cswap::PoolSnapshot kPool = [] {
    cswap::PoolSnapshot pool;
    pool.tenants.emplace_back();
    return pool;
  }();
  cswap::HttpSession session(limits);
  size_t replies = 0;
  while (!bytes.empty()) {
    session.receive(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    while (session.state() == HttpState::kReply) {
      const cswap::HttpReply reply = session.reply([] { return kPool; });
      if (!reply.bytes.starts_with("HTTP/1.")) std::abort();
      if (reply.bytes.find("\r\n\r\n") == std::string::npos) std::abort();
      // The shortest request that is answered.
      if (++replies * sizeof("A / HTTP/1.0\r\n\r") > size + sizeof("A / HTTP/1.0\r\n\r")) {
        std::abort();
      }
      if (reply.close) return 0;
    }
  }
  return 0;
}
