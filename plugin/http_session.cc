#include "plugin/http_session.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/write.hpp>
#include <cassert>
#include <sstream>

#include "plugin/stats_format.h"

namespace cswap {
namespace {

namespace http = boost::beast::http;

constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char* kJsonType = "application/json";
constexpr const char* kTextType = "text/plain; charset=utf-8";

enum class Page { kNone, kMetrics, kJson, kLocks };

Page page_of(std::string_view target) {
  // A request may name the whole URL; the host in it does not matter here.
  constexpr std::string_view kScheme = "http://";
  if (target.starts_with(kScheme)) {
    const size_t slash = target.find('/', kScheme.size());
    if (slash == std::string_view::npos) return Page::kNone;
    target.remove_prefix(slash);
  }
  target = target.substr(0, target.find('?'));
  if (target == "/metrics") return Page::kMetrics;
  if (target == "/stats.json") return Page::kJson;
  if (target == "/locks") return Page::kLocks;
  return Page::kNone;
}

struct Answer {
  http::status status = http::status::ok;
  const char* content_type = kTextType;
  std::string body;
};

Answer refusal_answer(http::status status) {
  Answer answer;
  answer.status = status;
  const auto reason = http::obsolete_reason(status);
  answer.body.assign(reason.data(), reason.size());
  answer.body += '\n';
  return answer;
}

Answer page_answer(Page page, const std::function<PoolSnapshot()>& snapshot) {
  switch (page) {
    case Page::kMetrics:
      return {http::status::ok, kPrometheusType, format_prometheus(snapshot())};
    case Page::kJson:
      return {http::status::ok, kJsonType, format_json(snapshot())};
    case Page::kLocks:
      return {http::status::ok, kTextType, LockStats::table(snapshot().locks)};
    case Page::kNone:
      break;
  }
  return refusal_answer(http::status::not_found);
}

std::string to_bytes(const Answer& answer, unsigned version, bool keep_alive, bool with_body) {
  http::response<http::empty_body> response(answer.status, version);
  response.set(http::field::server, "cswap/" CSWAP_VERSION);
  response.set(http::field::content_type, answer.content_type);
  response.set(http::field::cache_control, "no-store");
  response.set("X-Content-Type-Options", "nosniff");
  if (answer.status == http::status::method_not_allowed) {
    response.set(http::field::allow, "GET, HEAD");
  }
  response.content_length(answer.body.size());
  response.keep_alive(keep_alive);
  std::ostringstream head;
  head.exceptions(std::ios::badbit);  // a stream without it swallows bad_alloc and cuts the head
  head << response.base();
  std::string bytes = std::move(head).str();
  if (with_body) bytes += answer.body;
  return bytes;
}

}  // namespace

struct HttpSession::Parser {
  http::request_parser<http::empty_body> beast;
};

HttpSession::HttpSession(const HttpLimits& limits) : limits_(limits) {}

HttpSession::~HttpSession() = default;

void HttpSession::receive(std::string_view bytes) {
  assert(state_ != HttpState::kReply);
  pending_ += bytes;
  advance();
}

void HttpSession::advance() {
  if (state_ == HttpState::kIdle && !pending_.empty()) {
    parser_ = std::make_unique<Parser>();
    parser_->beast.header_limit(static_cast<uint32_t>(limits_.head_bytes));
    parser_->beast.body_limit(limits_.body_bytes);
    head_bytes_ = 0;
    state_ = HttpState::kHead;
  }
  if (state_ == HttpState::kHead) parse_head();
  if (state_ == HttpState::kBody) {
    const size_t n = std::min(body_left_bytes_, pending_.size());
    pending_.erase(0, n);
    body_left_bytes_ -= n;
    if (body_left_bytes_ == 0) state_ = HttpState::kReply;
  }
}

void HttpSession::parse_head() {
  boost::beast::error_code error;
  const size_t n = parser_->beast.put(boost::asio::buffer(pending_), error);
  pending_.erase(0, n);
  head_bytes_ += n;
  if (error == http::error::need_more) return;
  if (error == http::error::header_limit) {
    refuse(431);
  } else if (error == http::error::body_limit) {
    refuse(413);
  } else if (error) {
    refuse(400);
  } else if (head_bytes_ > limits_.head_bytes) {
    // Beast's limit holds for the request line and for the fields apart, this one for both.
    refuse(431);
  } else {
    begin_body();
  }
}

void HttpSession::begin_body() {
  const auto& request = parser_->beast.get();
  const auto hosts = request.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && request.version() >= 11)) return refuse(400);
  if (request.count(http::field::expect) > 0) return refuse(417);
  // The pages need no body, so its framing is kept to what cannot be misread.
  if (parser_->beast.chunked()) return refuse(411);
  if (request.count(http::field::transfer_encoding) > 0) return refuse(400);
  body_left_bytes_ = static_cast<size_t>(parser_->beast.content_length().value_or(0));
  state_ = HttpState::kBody;
}

void HttpSession::refuse(unsigned status) {
  refusal_ = status;
  pending_ = std::string();
  state_ = HttpState::kReply;
}

HttpReply HttpSession::reply(const std::function<PoolSnapshot()>& snapshot) {
  assert(state_ == HttpState::kReply);
  const auto& request = parser_->beast.get();
  const bool with_body = request.method() != http::verb::head;
  HttpReply reply;
  if (refusal_ != 0) {
    const Answer answer = refusal_answer(static_cast<http::status>(refusal_));
    reply.close = true;
    reply.bytes = to_bytes(answer, 11, false, with_body);
    return reply;
  }
  const Page page = page_of({request.target().data(), request.target().size()});
  const bool readable = request.method() == http::verb::get || !with_body;
  Answer answer;
  if (page == Page::kNone) {
    answer = refusal_answer(http::status::not_found);
  } else if (!readable) {
    answer = refusal_answer(http::status::method_not_allowed);
  } else {
    answer = page_answer(page, snapshot);
  }
  const bool keep_alive = request.keep_alive();
  reply.close = !keep_alive;
  reply.bytes = to_bytes(answer, request.version(), keep_alive, with_body);
  parser_.reset();
  state_ = HttpState::kIdle;
  if (!reply.close) advance();
  return reply;
}

}  // namespace cswap
