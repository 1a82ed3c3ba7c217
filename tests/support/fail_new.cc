// A library to be preloaded: operator new that fails when told to, see fail_new.h.
#include "tests/support/fail_new.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

using cswap::test::FailNewControl;

FailNewControl* control = nullptr;

[[gnu::constructor]] void map_control() {
  const char* const path = std::getenv(cswap::test::kFailNewVariable);
  if (path == nullptr) return;
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* const at =
      ::mmap(nullptr, sizeof(FailNewControl), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (at != MAP_FAILED) control = static_cast<FailNewControl*>(at);
}

bool must_fail() {
  if (control == nullptr || control->countdown.load() <= 0) return false;
  if (control->countdown.fetch_sub(1) != 1) return false;
  control->failures.fetch_add(1);
  return true;
}

void* allocate(size_t bytes, size_t alignment) {
  if (must_fail()) return nullptr;
  bytes = std::max<size_t>(bytes, 1);
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return std::malloc(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(size_t bytes, size_t alignment) {
  void* const at = allocate(bytes, alignment);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}

}  // namespace

#define EXPORTED [[gnu::visibility("default")]]

EXPORTED void* operator new(size_t bytes) { return allocate_or_throw(bytes, 1); }
EXPORTED void* operator new[](size_t bytes) { return allocate_or_throw(bytes, 1); }
EXPORTED void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<size_t>(alignment));
}
EXPORTED void* operator new[](size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<size_t>(alignment));
}
EXPORTED void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, 1);
}
EXPORTED void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, 1);
}
EXPORTED void operator delete(void* at) noexcept { std::free(at); }
EXPORTED void operator delete[](void* at) noexcept { std::free(at); }
EXPORTED void operator delete(void* at, size_t) noexcept { std::free(at); }
EXPORTED void operator delete[](void* at, size_t) noexcept { std::free(at); }
EXPORTED void operator delete(void* at, std::align_val_t) noexcept { std::free(at); }
EXPORTED void operator delete[](void* at, std::align_val_t) noexcept { std::free(at); }
EXPORTED void operator delete(void* at, size_t, std::align_val_t) noexcept { std::free(at); }
EXPORTED void operator delete[](void* at, size_t, std::align_val_t) noexcept { std::free(at); }
