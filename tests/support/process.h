// Child processes of tests: started with their output captured, awaited by condition, and never
// left behind.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/await.h"

namespace cswap::test {

using Words = std::vector<std::string>;

// A directory for sockets and logs, removed with everything in it.
class ScratchDir {
 public:
  ScratchDir();
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  ~ScratchDir();
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

[[nodiscard]] std::string read_file(const std::string& path);

// How a process ended.
struct Exit {
  int code = -1;   // when it exited
  int signal = 0;  // when a signal ended it
  [[nodiscard]] bool clean() const { return code == 0 && signal == 0; }
};

// A child of this process, or (see adopt) one that a child left. Killed when destroyed.
//
// All functions throw std::runtime_error for what is not a result but a broken test. Not
// thread-safe.
class Process {
 public:
  Process() = default;
  // `environment` is added to this process's own. Output goes to the files named.
  Process(const Words& command, const Words& environment, const std::string& out_path,
          const std::string& err_path);
  // Takes over a process that a daemonising child left. This process must have called
  // become_subreaper() before.
  static Process adopt(pid_t pid);
  Process(Process&& other) noexcept { *this = std::move(other); }
  Process& operator=(Process&& other) noexcept;
  ~Process();

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool running();
  void signal(int number) const;
  // Waits until it ends.
  Exit wait();
  // Waits until `path` exists, or the process ends: false then.
  bool wait_for_file(const std::string& path);

 private:
  pid_t pid_ = -1;  // -1 when there is none, or it has been waited for
  int pid_fd_ = -1;
  bool ended_ = false;
  Exit exit_;
};

// Orphans of children become children of this process, so that adopt() can wait for them.
void become_subreaper();

struct Output {
  Exit exit;
  std::string out;
  std::string err;
};

// Runs a command to its end.
Output run(const Words& command, const Words& environment = {});

// A field of /proc/PID/status in its unit: "VmRSS" in KiB, "Threads".
[[nodiscard]] uint64_t proc_status(pid_t pid, const std::string& field);
// The names of the threads of a process, sorted.
[[nodiscard]] Words thread_names(pid_t pid);

}  // namespace cswap::test
