// The HTTP of one connection to the statistics endpoint, without sockets, timers or threads: bytes
// in, bytes out. Parsing is Boost.Beast's.
//
// GET and HEAD of /metrics, /stats.json and /locks, query ignored; HTTP/1.0 and 1.1 with kept-alive
// and pipelined requests. Bodies are skipped, never stored. Every refusal is a plain text line:
//   400 malformed, no or two Host lines in HTTP/1.1; 404 path; 405 method; 411 chunked body;
//   413 body above the limit; 417 any Expect; 431 head above the limit.
// After a 404 or 405 the connection goes on, after the others it closes.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/stats.h"

namespace cswap {

struct HttpLimits {
  size_t head_bytes = 8 * 1024;   // request line and fields together
  size_t body_bytes = 64 * 1024;  // as the request announces it
};

// What to send, and whether the connection ends after it.
struct HttpReply {
  std::string bytes;
  bool close = false;
};

enum class HttpState {
  kIdle,   // no byte of a further request has come
  kHead,   // part of a request's head has come
  kBody,   // the head has come and part of the body is missing
  kReply,  // a reply is due: call reply()
};

// Not thread safe. Memory is bounded: twice a head's limit, and what one receive() brought.
class HttpSession {
 public:
  explicit HttpSession(const HttpLimits& limits);
  ~HttpSession();

  [[nodiscard]] HttpState state() const { return state_; }

  // Takes bytes from the client. Not while a reply is due.
  void receive(std::string_view bytes);

  // Answers the request and moves on to bytes that came behind it, so that the next reply may be
  // due at once. The snapshot is taken only for a page that shows it; what it throws passes
  // through, and the session is not to be used then. Only in kReply; never after a reply that says
  // close.
  [[nodiscard]] HttpReply reply(const std::function<PoolSnapshot()>& snapshot);

 private:
  struct Parser;

  void advance();
  void parse_head();
  void begin_body();
  void refuse(unsigned status);

  const HttpLimits limits_;
  HttpState state_ = HttpState::kIdle;
  std::unique_ptr<Parser> parser_;  // of the current request
  std::string pending_;             // received and not yet consumed
  size_t head_bytes_ = 0;           // of the current head, consumed so far
  size_t body_left_bytes_ = 0;      // of the current body
  unsigned refusal_ = 0;            // status that ends the connection, 0 for none
};

}  // namespace cswap
