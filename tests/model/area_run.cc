#include "tests/model/area_run.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "tests/model/content.h"

namespace cswap::test {
namespace {

constexpr size_t kDepth = 6;
constexpr uint64_t kSlotClusterBytes = uint64_t{kSlotClusterSlots} * kPageBytes;

uint64_t page_up(uint64_t offset) { return (offset + kPageBytes - 1) / kPageBytes * kPageBytes; }
uint64_t page_down(uint64_t offset) { return offset / kPageBytes * kPageBytes; }

}  // namespace

AreaRun::AreaRun(const Settings& settings, const std::string& socket_path, Area area,
                 std::span<std::byte> device, uint64_t seed)
    : settings_(settings),
      area_(area),
      device_(device),
      random_(seed),
      pipeline_(socket_path, kDepth,
                [this](Request& request, int error) { finish(request, error); }),
      empty_(device.size() / kPageBytes, 1) {
  if (settings.limited() && !settings.all_or_nothing()) {
    second_look_ = std::make_unique<NbdClient>(socket_path);
  }
}

void AreaRun::run() {
  while (submitted_ < settings_.operations) submit_one();
  pipeline_.drain();
}

void AreaRun::submit_one() {
  constexpr Kind kKinds[] = {Kind::kWrite, Kind::kWrite,   Kind::kWrite, Kind::kWrite,
                             Kind::kWrite, Kind::kRead,    Kind::kRead,  Kind::kRead,
                             Kind::kRead,  Kind::kZero,    Kind::kZero,  Kind::kTrim,
                             Kind::kTrim,  Kind::kExtents, Kind::kCache, Kind::kFlush};
  auto request = std::make_unique<Request>();
  request->kind = kKinds[random_.below(std::size(kKinds))];
  if (request->kind != Kind::kFlush) {
    const Range range = choose_range();
    request->offset = range.offset;
    request->length = range.length;
  }
  if (request->kind == Kind::kWrite && random_.below(8) == 0) request->flags = LIBNBD_CMD_FLAG_FUA;
  if (request->kind == Kind::kZero) {
    constexpr uint32_t kFlags[] = {0, LIBNBD_CMD_FLAG_NO_HOLE, LIBNBD_CMD_FLAG_FAST_ZERO,
                                   LIBNBD_CMD_FLAG_NO_HOLE | LIBNBD_CMD_FLAG_FUA};
    request->flags = kFlags[random_.below(std::size(kFlags))];
  }
  if (request->kind == Kind::kWrite) {
    request->data.resize(request->length);
    fill(request->offset, request->data, random_);
  }
  pipeline_.make_room(request->offset, request->end());
  pipeline_.submit(std::move(request));
  ++submitted_;
}

// Any alignment and length, more often where something could go wrong: inside a page, at the edges
// of pages and of slot clusters.
AreaRun::Range AreaRun::choose_range() {
  const uint64_t size = area_.end - area_.begin;
  uint64_t offset = area_.begin + random_.below(size);
  switch (random_.below(4)) {
    case 0:
      break;
    case 1:
      offset = page_down(offset);
      break;
    case 2:
      offset = page_down(offset) - 8 + random_.below(16);
      break;
    default:
      offset = offset / kSlotClusterBytes * kSlotClusterBytes - random_.below(4 * kPageBytes);
      if (random_.below(2) == 0) offset = page_down(offset);
      break;
  }
  // Also catches what wrapped below zero.
  if (offset < area_.begin || offset >= area_.end) offset = area_.begin;
  uint64_t length = 0;
  switch (random_.below(16)) {
    case 0:
      length = 1 + random_.below(4 * kSlotClusterBytes / 2);
      break;
    case 1:
    case 2:
      length = 1 + random_.below(256 * kPageBytes);
      break;
    case 3:
    case 4:
    case 5:
    case 6:
      length = (1 + random_.below(16)) * kPageBytes;
      break;
    case 7:
    case 8:
    case 9:
      length = 1 + random_.below(16 * kPageBytes);
      break;
    default:
      length = 1 + random_.below(kPageBytes + 16);
      break;
  }
  return {offset, std::min(length, area_.end - offset)};
}

void AreaRun::finish(Request& request, int error) {
  const bool may_be_refused = request.kind == Kind::kWrite || request.kind == Kind::kZero;
  if (error == ENOSPC && may_be_refused && settings_.limited()) {
    ++refused_;
    if (request.kind == Kind::kWrite && second_look_) apply_start(request);
    return;
  }
  if (error != 0) fail(request, std::strerror(error));
  if (request.kind == Kind::kRead) check_read(request);
  if (request.kind == Kind::kExtents) check_extents(request);
  apply(request);
}

void AreaRun::check_read(const Request& request) {
  const std::span expected = device_.subspan(request.offset, request.length);
  if (std::memcmp(expected.data(), request.data.data(), request.length) == 0) return;
  const auto [want, got] = std::ranges::mismatch(expected, request.data);
  fail(request,
       "first wrong byte at " +
           std::to_string(request.offset + static_cast<uint64_t>(want - expected.begin())) + ": " +
           std::to_string(static_cast<int>(*got)) + " instead of " +
           std::to_string(static_cast<int>(*want)));
}

void AreaRun::check_extents(const Request& request) {
  uint64_t at = request.offset;
  if (request.found.extents.empty()) fail(request, "no extents");
  for (const Extent& extent : request.found.extents) {
    if (extent.offset != at || extent.length == 0) fail(request, "extents are not contiguous");
    const uint64_t end = std::min(at + extent.length, request.end());
    if (extent.hole && !all_zero(device_.subspan(at, end - at))) {
      fail(request, "a hole where there is data, in the extent at " + std::to_string(at));
    }
    // An empty page has to be a hole, else a copy of the device would be as large as the device.
    for (uint64_t page = page_up(at); !extent.hole && page + kPageBytes <= end;
         page += kPageBytes) {
      if (empty_[page / kPageBytes] != 0) {
        fail(request, "no hole at the empty page " + std::to_string(page));
      }
    }
    at = end;
    if (at == request.end()) break;
  }
}

void AreaRun::apply(const Request& request) {
  const std::span range = device_.subspan(request.offset, request.length);
  if (request.kind == Kind::kWrite) {
    std::memcpy(range.data(), request.data.data(), range.size());
    note_pages(request.offset, request.end(), false);
  } else if (request.kind == Kind::kZero) {
    std::memset(range.data(), 0, range.size());
    // Without a hole allowed, whether pages become empty is the device's own affair.
    note_pages(request.offset, request.end(), (request.flags & LIBNBD_CMD_FLAG_NO_HOLE) == 0);
  } else if (request.kind == Kind::kTrim) {
    const uint64_t first = page_up(request.offset);
    const uint64_t end = page_down(request.end());
    if (first < end) std::memset(device_.data() + first, 0, end - first);
    note_pages(request.offset, request.end(), true);
  }
}

// A write that was refused at one of its pages: those before it must be stored, the others as they
// were.
void AreaRun::apply_start(const Request& request) {
  const std::vector<std::byte> found = second_look_->read(request.offset, request.length);
  uint64_t stored_end = request.offset;
  bool ended = false;
  for (uint64_t at = request.offset; at < request.end();) {
    const uint64_t end = std::min(request.end(), page_down(at) + kPageBytes);
    const auto is = [&](std::span<const std::byte> other, uint64_t start) {
      return std::memcmp(found.data() + (at - request.offset), other.data() + (at - start),
                         end - at) == 0;
    };
    const bool is_new = is(request.data, request.offset);
    const bool is_old = is(device_, 0);
    if (!is_old && (!is_new || ended)) {
      fail(request, "refused, and wrong in the page of " + std::to_string(at));
    }
    if (!is_new) ended = true;
    if (!ended) stored_end = end;
    at = end;
  }
  const size_t stored = stored_end - request.offset;
  std::memcpy(device_.data() + request.offset, request.data.data(), stored);
  note_pages(request.offset, stored_end, false);
}

// A write fills all pages that it touches, a zero or a trim empties those that it covers whole.
void AreaRun::note_pages(uint64_t offset, uint64_t end, bool empty) {
  const uint64_t first_page = empty ? page_up(offset) : page_down(offset);
  const uint64_t end_page = empty ? page_down(end) : page_up(end);
  for (uint64_t page = first_page; page < end_page; page += kPageBytes) {
    empty_[page / kPageBytes] = empty;
  }
}

uint64_t AreaRun::filled_pages() const {
  uint64_t pages = 0;
  for (uint64_t at = page_up(area_.begin); at + kPageBytes <= area_.end; at += kPageBytes) {
    pages += !all_zero(device_.subspan(at, kPageBytes));
  }
  return pages;
}

uint64_t AreaRun::empty_pages() const {
  uint64_t pages = 0;
  for (uint64_t at = page_up(area_.begin); at + kPageBytes <= area_.end; at += kPageBytes) {
    pages += empty_[at / kPageBytes];
  }
  return pages;
}

void AreaRun::fail(const Request& request, const std::string& what) const {
  throw std::runtime_error("operation " + std::to_string(submitted_) + " of the area at " +
                           std::to_string(area_.begin) + ": " + request.text() + ": " + what);
}

}  // namespace cswap::test
