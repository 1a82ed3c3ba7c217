#include "tests/model/request.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "tests/support/process.h"

namespace cswap::test {

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kRead:
      return "read";
    case Kind::kWrite:
      return "write";
    case Kind::kZero:
      return "zero";
    case Kind::kTrim:
      return "trim";
    case Kind::kCache:
      return "cache";
    case Kind::kFlush:
      return "flush";
    case Kind::kExtents:
      return "block status";
  }
  return "?";
}

std::string Request::text() const {
  return std::string(kind_name(kind)) + " of " + std::to_string(length) + " bytes at " +
         std::to_string(offset) + " with flags " + std::to_string(flags);
}

Pipeline::Pipeline(const std::string& socket_path, size_t depth, Finish finish)
    : client_(socket_path), depth_(depth), finish_(std::move(finish)) {}

void Pipeline::make_room(uint64_t from, uint64_t to) {
  const auto overlaps = [&](const auto& request) { return request->overlaps(from, to); };
  while (in_flight_.size() >= depth_ || std::ranges::any_of(in_flight_, overlaps)) reap();
}

void Pipeline::submit(std::unique_ptr<Request> request) {
  nbd_handle* const h = client_.handle();
  Request& r = *request;
  const nbd_completion_callback none = {nullptr, nullptr, nullptr};
  const nbd_extent_callback collect = {ExtentCollector::add, &r.found, nullptr};
  switch (r.kind) {
    case Kind::kRead:
      r.data.resize(r.length);
      r.cookie = nbd_aio_pread(h, r.data.data(), r.length, r.offset, none, r.flags);
      break;
    case Kind::kWrite:
      r.cookie = nbd_aio_pwrite(h, r.data.data(), r.length, r.offset, none, r.flags);
      break;
    case Kind::kZero:
      r.cookie = nbd_aio_zero(h, r.length, r.offset, none, r.flags);
      break;
    case Kind::kTrim:
      r.cookie = nbd_aio_trim(h, r.length, r.offset, none, r.flags);
      break;
    case Kind::kCache:
      r.cookie = nbd_aio_cache(h, r.length, r.offset, none, r.flags);
      break;
    case Kind::kFlush:
      r.cookie = nbd_aio_flush(h, none, r.flags);
      break;
    case Kind::kExtents:
      r.cookie = nbd_aio_block_status(h, r.length, r.offset, collect, none, r.flags);
      break;
  }
  if (r.cookie < 0) throw std::runtime_error("cannot send " + r.text() + ": " + nbd_get_error());
  in_flight_.push_back(std::move(request));
}

void Pipeline::drain() {
  while (!in_flight_.empty()) reap();
}

// Waits for the server and finishes all that it has answered.
void Pipeline::reap() {
  const int patience_ms = static_cast<int>(std::chrono::milliseconds(kPatience).count());
  const int ready = nbd_poll(client_.handle(), patience_ms);
  if (ready < 0) throw std::runtime_error(std::string("connection lost: ") + nbd_get_error());
  if (ready == 0) throw std::runtime_error("no answer to " + in_flight_.front()->text());
  for (size_t i = 0; i < in_flight_.size();) {
    const int error = outcome(*in_flight_[i]);
    if (error < 0) {
      ++i;
      continue;
    }
    const std::unique_ptr<Request> request = std::move(in_flight_[i]);
    in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(i));
    finish_(*request, error);
  }
}

int Pipeline::outcome(const Request& request) {
  const int status =
      nbd_aio_command_completed(client_.handle(), static_cast<uint64_t>(request.cookie));
  if (status == 0) return -1;
  return status == 1 ? 0 : nbd_get_errno();
}

}  // namespace cswap::test
