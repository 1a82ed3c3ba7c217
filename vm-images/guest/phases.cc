#include "phases.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cswap::guest {
namespace {

constexpr int kChildCheckMs = 200;

const char* name_of(Phase phase) {
  constexpr std::array<const char*, kPhases> kNames = {"start", "filled", "checked", "free"};
  return kNames[static_cast<size_t>(phase)];
}

}  // namespace

Phases::Phases() {
  for (Gate& gate : gates_) {
    if (pipe(gate.arrive) != 0 || pipe(gate.release) != 0) {
      std::fprintf(stderr, "usemem: pipe: %s\n", std::strerror(errno));
      std::exit(1);
    }
  }
}

void Phases::enter_child() {
  for (Gate& gate : gates_) {
    close(gate.arrive[0]);
    close(gate.release[1]);
  }
}

void Phases::arrive_and_wait(Phase phase) {
  const Gate& gate = gates_[static_cast<size_t>(phase)];
  char byte = 0;
  if (write(gate.arrive[1], &byte, 1) != 1) _exit(1);
  // The parent opens a gate by closing its end: every waiting worker then reads the end of file.
  while (read(gate.release[0], &byte, 1) < 0 && errno == EINTR) {
  }
}

bool Phases::lead(Phase phase, unsigned workers, const std::string& hook) {
  Gate& gate = gates_[static_cast<size_t>(phase)];
  for (unsigned arrived = 0; arrived < workers;) {
    // A child that the kernel killed never arrives, so a wait must also look for dead ones.
    pollfd waiting{gate.arrive[0], POLLIN, 0};
    if (poll(&waiting, 1, kChildCheckMs) > 0) {
      char byte;
      if (read(gate.arrive[0], &byte, 1) == 1) ++arrived;
    } else if (!reap(WNOHANG)) {
      return false;
    }
  }
  bool hook_worked = true;
  if (!hook.empty()) {
    std::fflush(nullptr);
    const int status = std::system((hook + " " + name_of(phase)).c_str());
    hook_worked = status == 0;
    if (!hook_worked) {
      std::fprintf(stderr, "usemem: '%s %s' failed\n", hook.c_str(), name_of(phase));
    }
  }
  close(gate.release[1]);
  return hook_worked;
}

bool Phases::reap(int flags) {
  for (size_t i = 0; i < children_.size();) {
    int status = 0;
    const pid_t pid = waitpid(children_[i], &status, flags);
    if (pid != children_[i]) {
      ++i;
      continue;
    }
    children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(i));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (WIFSIGNALED(status)) {
      std::fprintf(stderr, "usemem: a task was killed: %s\n", strsignal(WTERMSIG(status)));
    }
    return false;
  }
  return true;
}

bool Phases::wait_children() {
  bool all_well = true;
  while (!children_.empty()) all_well = reap(0) && all_well;
  return all_well;
}

void Phases::kill_children() {
  for (const pid_t pid : children_) kill(pid, SIGKILL);
  wait_children();
}

}  // namespace cswap::guest
