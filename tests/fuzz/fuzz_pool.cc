// A sequence of requests to a pool with a small limit, against plain bytes; objects get damaged in
// between.
//
// Input: a byte of switches, then requests of six bytes: what, where (two), how long (two),
// content. They go to sixteen pages on both sides of the border of two slot clusters.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "tests/support/model_device.h"

namespace {

using namespace cswap;
using test::ModelDevice;
using test::Page;
using test::PageKind;

constexpr uint64_t kFirstPage = kSlotClusterSlots - 8;
constexpr uint64_t kUsedPages = 16;
constexpr uint64_t kDevicePages = kFirstPage + kUsedPages;  // up to the device's end
constexpr uint64_t kFrom = kFirstPage * kPageBytes;
constexpr uint64_t kBytes = kUsedPages * kPageBytes;
constexpr size_t kMaxRequests = 64;

void require(bool condition) {
  if (!condition) std::abort();
}

PoolOptions options_of(uint8_t switches) {
  const char* const codecs[] = {"lz4", "zstd", "lz4:65537", "none"};
  PoolOptions options = test::options_for(codecs[switches & 3], (switches & 4) != 0);
  options.same_filled = (switches & 8) != 0;
  options.mem_limit_bytes = (switches >> 4 & 3) * (kMinMemLimitBytes * 3 / 4);
  if (options.mem_limit_bytes > 0) {
    options.mem_limit_bytes = std::max(options.mem_limit_bytes, kMinMemLimitBytes);
  }
  return options;
}

struct Request {
  explicit Request(std::span<const uint8_t, 6> bytes)
      : what(bytes[0] % 8),
        offset((uint64_t{bytes[1]} << 8 | bytes[2]) % kBytes),
        // Any place and length at times, else whole pages.
        length((uint64_t{bytes[3]} << 8 | bytes[4]) % (4 * kPageBytes)),
        content(bytes[5]) {
    if (bytes[0] % 16 >= 8) {
      offset -= offset % kPageBytes;
      length -= length % kPageBytes;
    }
    length = std::min(length, kBytes - offset);
  }
  uint64_t what;
  uint64_t offset;
  uint64_t length;
  uint64_t content;
};

std::vector<std::byte> content_of(const Request& request) {
  std::vector<std::byte> data;
  for (uint64_t i = 0; data.size() < request.length; ++i) {
    const uint64_t seed = request.content / 5 + i;
    const Page page = page_of(static_cast<PageKind>(1 + (request.content + i) % 5), seed);
    data.insert(data.end(), page.begin(), page.end());
  }
  data.resize(request.length);
  return data;
}

void check_status(const PoolOptions& options, Status status) {
  require(status == Status::kOk || (status == Status::kNoSpace && options.mem_limit_bytes > 0));
}

// Flips a byte of a page's object, looks, and flips it back.
void damage(ModelDevice& device, const Request& request) {
  const PageIndex page{(kFrom + request.offset) / kPageBytes};
  const std::span<std::byte> object = device.pool().object_bytes_for_test(device.tenant(), page);
  if (object.empty()) return;
  std::byte& byte = object[request.length % object.size()];
  const std::byte mask{static_cast<uint8_t>(request.content | 1)};
  byte ^= mask;
  Page read;
  const Status loaded = device.pool().load(device.tenant(), page.value * kPageBytes, read);
  require(loaded == Status::kOk || loaded == Status::kDamaged);
  if (device.pool().options().checksum) {
    require(loaded == Status::kDamaged);
    const std::span part(read.data(), 10);
    require(device.store(page.value * kPageBytes + 100, part) == Status::kDamaged);
    require(device.zero(page.value * kPageBytes + 100, 10) == Status::kDamaged);
  }
  byte ^= mask;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const PoolOptions options = options_of(data[0]);
  ModelDevice device(options, kDevicePages);
  std::span<const uint8_t> rest(data + 1, size - 1);
  for (size_t n = 0; n < kMaxRequests && rest.size() >= 6; ++n, rest = rest.subspan(6)) {
    const Request request(rest.first<6>());
    const uint64_t offset = kFrom + request.offset;
    switch (request.what) {
      case 0:
        device.discard(offset, request.length);
        break;
      case 1:
        check_status(options, device.zero(offset, request.length));
        break;
      case 2:
        damage(device, request);
        break;
      case 3:
        if (request.length > 0) require(device.extents_match(offset, request.length));
        break;
      default:
        check_status(options, device.store(offset, content_of(request)));
    }
    require(device.matches(offset, request.length));
  }
  device.pool().check_invariants(2);
  require(device.matches(kFrom, kBytes));
  require(device.gauges() == device.expected());
  device.discard(0, kDevicePages * kPageBytes);
  device.pool().check_invariants(2);
  require(device.gauges() == test::Gauges{});
  require(device.pool().snapshot().pool_total_size == 0);
  return 0;
}
