// What a guest or an operator can cause. A broken invariant is not a Status: it aborts, since a
// wrong page is worse than a dead device.
#pragma once

#include <cerrno>

namespace cswap {

enum class [[nodiscard]] Status{
    kOk,
    kNoSpace,  // the memory limit, or the arena, cannot hold the request: ENOSPC
    kDamaged,  // a page cannot be produced: EIO
};

[[nodiscard]] constexpr int to_errno(Status status) {
  switch (status) {
    case Status::kOk:
      return 0;
    case Status::kNoSpace:
      return ENOSPC;
    case Status::kDamaged:
      return EIO;
  }
  return EIO;
}

}  // namespace cswap
