// Waiting for a condition that nothing announces.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

namespace cswap::test {

// After this long a test gives up waiting. No test passes or fails by how long something took.
inline constexpr std::chrono::seconds kPatience{60};

[[noreturn]] inline void give_up(const std::string& what) {
  throw std::runtime_error("waited in vain for " + what);
}

// Calls `met` until it returns true, pausing between the calls; throws with `what` when it never
// does.
template <typename Condition>
void await(const std::string& what, Condition&& met) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!met()) {
    if (std::chrono::steady_clock::now() > end) give_up(what);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace cswap::test
