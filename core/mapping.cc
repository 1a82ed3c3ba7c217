#include "core/mapping.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "core/check.h"
#include "core/types.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace cswap {

Mapping::Mapping(size_t bytes, const char* purpose)
    : bytes_((bytes + kPageBytes - 1) & ~size_t{kPageBytes - 1}) {
  void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    const int error = errno;
    throw std::system_error(
        error, std::generic_category(),
        "cannot reserve " + std::to_string(bytes_ >> 20) + " MiB of address space for " + purpose +
            "; use a smaller size, raise the limits on address space (ulimit -v) and locked "
            "memory (ulimit -l), or set vm.overcommit_memory to 0 or 1");
  }
  data_ = static_cast<std::byte*>(at);
  // Advice that an old or small kernel refuses costs memory or privacy, but no correctness.
  madvise(data_, bytes_, MADV_NOHUGEPAGE);
  madvise(data_, bytes_, MADV_DONTDUMP);
}

Mapping::~Mapping() { munmap(data_, bytes_); }

void Mapping::release(size_t offset, size_t bytes) const {
  CSWAP_DCHECK(offset % kPageBytes == 0 && bytes % kPageBytes == 0 && offset + bytes <= bytes_);
  // Plain MADV_DONTNEED refuses locked pages; MADV_DONTNEED_LOCKED is not in kernels before 5.18,
  // where unlocking first does the same.
  if (madvise(data_ + offset, bytes, MADV_DONTNEED_LOCKED) == 0) return;
  if (madvise(data_ + offset, bytes, MADV_DONTNEED) == 0) return;
  CSWAP_CHECK(munlock(data_ + offset, bytes) == 0);
  CSWAP_CHECK(madvise(data_ + offset, bytes, MADV_DONTNEED) == 0);
  mlock2(data_ + offset, bytes, MLOCK_ONFAULT);
}

void Mapping::release_all(std::span<const Range> ranges) const {
  CSWAP_DCHECK(ranges.size() <= kMaxRanges);
  std::array<iovec, kMaxRanges> parts;
  size_t bytes = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    parts[i] = {data_ + ranges[i].offset, ranges[i].bytes};
    bytes += ranges[i].bytes;
  }
  constexpr int kSelf = -10000;  // PIDFD_SELF_THREAD_GROUP, which older headers do not have
  if (ranges.size() > 1 && syscall(SYS_process_madvise, kSelf, parts.data(), ranges.size(),
                                   MADV_DONTNEED_LOCKED, 0) == static_cast<ssize_t>(bytes)) {
    return;
  }
  for (const Range& range : ranges) release(range.offset, range.bytes);
}

void Mapping::populate(size_t offset, size_t bytes) const {
  CSWAP_DCHECK(offset % kPageBytes == 0 && bytes % kPageBytes == 0 && offset + bytes <= bytes_);
  madvise(data_ + offset, bytes, MADV_POPULATE_WRITE);
}

size_t Mapping::resident_bytes() const {
  constexpr size_t kStepPages = 1 << 16;
  std::vector<unsigned char> pages(kStepPages);
  size_t resident = 0;
  for (size_t at = 0; at < bytes_; at += kStepPages * kPageBytes) {
    const size_t step = std::min(kStepPages * kPageBytes, bytes_ - at);
    CSWAP_CHECK(mincore(data_ + at, step, pages.data()) == 0);
    for (size_t i = 0; i < step / kPageBytes; ++i) resident += pages[i] & 1;
  }
  return resident * kPageBytes;
}

}  // namespace cswap
