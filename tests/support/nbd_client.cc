#include "tests/support/nbd_client.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace cswap::test {
namespace {

int result(int status) {
  if (status == 0) return 0;
  const int error = nbd_get_errno();
  return error != 0 ? error : EIO;
}

}  // namespace

NbdClient::NbdClient() : handle_(nbd_create()) {
  if (!handle_) throw std::runtime_error(nbd_get_error());
  // Requests that a careful client would not send are the tests' to send.
  nbd_set_strict_mode(handle(), 0);
  nbd_add_meta_context(handle(), LIBNBD_CONTEXT_BASE_ALLOCATION);
}

NbdClient::NbdClient(const std::string& socket_path, const std::string& export_name) : NbdClient() {
  if (nbd_set_export_name(handle(), export_name.c_str()) != 0 ||
      nbd_connect_unix(handle(), socket_path.c_str()) != 0) {
    throw std::runtime_error(std::string("cannot connect: ") + nbd_get_error());
  }
}

NbdClient NbdClient::unconnected() { return {}; }

int NbdClient::read(uint64_t offset, std::span<std::byte> to) {
  return result(nbd_pread(handle(), to.data(), to.size(), offset, 0));
}

int NbdClient::write(uint64_t offset, std::span<const std::byte> from, uint32_t flags) {
  return result(nbd_pwrite(handle(), from.data(), from.size(), offset, flags));
}

int NbdClient::zero(uint64_t offset, uint64_t length, uint32_t flags) {
  return result(nbd_zero(handle(), length, offset, flags));
}

int NbdClient::trim(uint64_t offset, uint64_t length) {
  return result(nbd_trim(handle(), length, offset, 0));
}

int NbdClient::cache(uint64_t offset, uint64_t length) {
  return result(nbd_cache(handle(), length, offset, 0));
}

int NbdClient::flush() { return result(nbd_flush(handle(), 0)); }

int NbdClient::extents(uint64_t offset, uint64_t length, std::vector<Extent>* extents,
                       uint32_t flags) {
  ExtentCollector collector;
  const nbd_extent_callback callback = {ExtentCollector::add, &collector, nullptr};
  const int status = result(nbd_block_status(handle(), length, offset, callback, flags));
  *extents = std::move(collector.extents);
  return status;
}

std::vector<std::byte> NbdClient::read(uint64_t offset, size_t length) {
  std::vector<std::byte> bytes(length);
  if (const int error = read(offset, bytes); error != 0) {
    throw std::runtime_error("read of " + std::to_string(length) + " bytes at " +
                             std::to_string(offset) + ": " + std::strerror(error));
  }
  return bytes;
}

uint64_t NbdClient::size() const { return static_cast<uint64_t>(nbd_get_size(handle())); }

int ExtentCollector::add(void* self, const char* context, uint64_t offset, uint32_t* entries,
                         size_t count, int*) {
  if (std::strcmp(context, LIBNBD_CONTEXT_BASE_ALLOCATION) != 0) return 0;
  constexpr uint32_t kHole = LIBNBD_STATE_HOLE | LIBNBD_STATE_ZERO;
  for (size_t i = 0; i + 1 < count; i += 2) {
    static_cast<ExtentCollector*>(self)->extents.push_back(
        {offset, entries[i], (entries[i + 1] & kHole) != 0});
    offset += entries[i];
  }
  return 0;
}

}  // namespace cswap::test
