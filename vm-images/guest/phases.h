// Phases that all workers, in several processes, pass together. Between them the parent may do
// something that must see all workers at the same point, such as reading a server's counters.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

namespace cswap::guest {

enum class Phase { kStart, kFilled, kChecked, kFree };
inline constexpr size_t kPhases = 4;

class Phases {
 public:
  // Before the fork. Exits with 1 when pipes cannot be made.
  Phases();

  // In each child, first of all: otherwise it would hold the gates shut itself.
  void enter_child();

  // In a worker: says that it is there, and waits until all are.
  void arrive_and_wait(Phase phase);

  // In the parent: waits for `workers` arrivals, runs `hook PHASE` unless it is empty, and lets
  // them go on. False when a child ended badly meanwhile or the hook failed.
  bool lead(Phase phase, unsigned workers, const std::string& hook);

  // In the parent: notes a child, and at the end waits for all. False when one ended badly.
  void add_child(pid_t pid) { children_.push_back(pid); }
  bool wait_children();
  void kill_children();

 private:
  struct Gate {
    int arrive[2];
    int release[2];
  };
  bool reap(int flags);

  std::array<Gate, kPhases> gates_;
  std::vector<pid_t> children_;
};

}  // namespace cswap::guest
