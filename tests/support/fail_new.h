// What a test and the shim that makes allocations fail (fail_new.cc) share: a mapped file, named by
// the environment variable CSWAP_FAIL_NEW.
#pragma once

#include <atomic>
#include <cstdint>

namespace cswap::test {

struct FailNewControl {
  // The allocation that brings it from 1 to 0 fails; at 0 and below none does.
  std::atomic<int64_t> countdown;
  // Allocations that failed so far.
  std::atomic<uint64_t> failures;
};

inline constexpr const char* kFailNewVariable = "CSWAP_FAIL_NEW";

}  // namespace cswap::test
