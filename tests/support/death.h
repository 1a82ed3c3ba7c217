// Whether something aborts, tried in a child process so that the test lives on.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "core/check.h"

namespace cswap::test {

// Runs `function` in a child and says whether it ended by SIGABRT, which is how a broken invariant
// ends a process. No other thread may hold a lock that `function` takes.
template <typename Function>
[[nodiscard]] bool aborts(Function&& function) {
  std::fflush(nullptr);
  const pid_t child = fork();
  CSWAP_CHECK(child >= 0);
  if (child == 0) {
    // doctest would report the signal as a failed test, and a core would be left.
    signal(SIGABRT, SIG_DFL);
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    std::forward<Function>(function)();
    _exit(0);
  }
  int status = 0;
  CSWAP_CHECK(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

}  // namespace cswap::test
