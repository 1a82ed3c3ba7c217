#include "tests/support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace cswap::test {
namespace {

constexpr int kPatienceMs = static_cast<int>(std::chrono::milliseconds(kPatience).count());

[[noreturn]] void fail_with_errno(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

int open_pid(pid_t pid) {
  const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) fail_with_errno("pidfd_open");
  return fd;
}

std::vector<char*> pointers(const Words& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

// This process's environment with `added` in place of what had those names.
Words environment_with(const Words& added) {
  Words result = added;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string entry = *at;
    const std::string name = entry.substr(0, entry.find('=') + 1);
    const bool replaced = std::any_of(added.begin(), added.end(), [&](const std::string& other) {
      return other.starts_with(name);
    });
    if (!replaced) result.push_back(entry);
  }
  return result;
}

// Runs in the child: nothing here may allocate, for another thread may have held a lock.
[[noreturn]] void exec_child(char* const* command, char* const* environment, const char* out_path,
                             const char* err_path) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND;
  const int in = ::open("/dev/null", O_RDONLY);
  const int out = ::open(out_path, kFlags, 0600);
  const int err = ::open(err_path, kFlags, 0600);
  if (in >= 0 && out >= 0 && err >= 0 && ::dup2(in, 0) >= 0 && ::dup2(out, 1) >= 0 &&
      ::dup2(err, 2) >= 0) {
    for (const int fd : {in, out, err}) {
      if (fd > 2) ::close(fd);
    }
    ::execvpe(command[0], command, environment);
  }
  _exit(127);
}

}  // namespace

ScratchDir::ScratchDir() {
  const char* const base = std::getenv("TMPDIR");
  std::string name = std::string(base != nullptr ? base : "/tmp") + "/cswap-test-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) fail_with_errno("mkdtemp");
  path_ = name;
}

ScratchDir::~ScratchDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  // Unlike an iterator it does not throw when a thread ends between opening its file in /proc and
  // reading it.
  bytes << file.rdbuf();
  return std::move(bytes).str();
}

Process::Process(const Words& command, const Words& environment, const std::string& out_path,
                 const std::string& err_path) {
  const Words full_environment = environment_with(environment);
  const std::vector<char*> argv = pointers(command);
  const std::vector<char*> envp = pointers(full_environment);
  pid_ = ::fork();
  if (pid_ < 0) fail_with_errno("fork");
  if (pid_ == 0) exec_child(argv.data(), envp.data(), out_path.c_str(), err_path.c_str());
  pid_fd_ = open_pid(pid_);
}

Process Process::adopt(pid_t pid) {
  Process process;
  process.pid_fd_ = open_pid(pid);
  process.pid_ = pid;
  return process;
}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pid_fd_, other.pid_fd_);
  std::swap(ended_, other.ended_);
  std::swap(exit_, other.exit_);
  return *this;
}

Process::~Process() {
  if (pid_ > 0 && !ended_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (pid_fd_ >= 0) ::close(pid_fd_);
}

bool Process::running() {
  pollfd fd{pid_fd_, POLLIN, 0};
  return pid_ > 0 && !ended_ && ::poll(&fd, 1, 0) == 0;
}

void Process::signal(int number) const {
  if (!ended_ && ::kill(pid_, number) != 0) fail_with_errno("kill");
}

Exit Process::wait() {
  if (ended_) return exit_;
  pollfd fd{pid_fd_, POLLIN, 0};
  if (::poll(&fd, 1, kPatienceMs) != 1) give_up("process " + std::to_string(pid_) + " to end");
  int status = 0;
  if (::waitpid(pid_, &status, 0) != pid_) fail_with_errno("waitpid");
  ended_ = true;
  if (WIFEXITED(status)) exit_.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) exit_.signal = WTERMSIG(status);
  return exit_;
}

bool Process::wait_for_file(const std::string& path) {
  const int watch = ::inotify_init1(IN_CLOEXEC);
  if (watch < 0) fail_with_errno("inotify_init1");
  const std::string folder = std::filesystem::path(path).parent_path();
  const bool watching = ::inotify_add_watch(watch, folder.c_str(), IN_CLOSE_WRITE) >= 0;
  bool found = false;
  bool ended = false;
  while (watching && !found && !ended) {
    std::error_code ignored;
    found = std::filesystem::file_size(path, ignored) > 0 && !ignored;
    if (found) break;
    pollfd fds[] = {{watch, POLLIN, 0}, {pid_fd_, POLLIN, 0}};
    if (::poll(fds, 2, kPatienceMs) <= 0) break;
    ended = fds[1].revents != 0;
    char events[4096];
    if (fds[0].revents != 0 && ::read(watch, events, sizeof events) < 0) break;
  }
  ::close(watch);
  if (!found && !ended) give_up(path);
  return found;
}

void become_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail_with_errno("PR_SET_CHILD_SUBREAPER");
}

Output run(const Words& command, const Words& environment) {
  const ScratchDir dir;
  Process process(command, environment, dir.file("out"), dir.file("err"));
  Output output;
  output.exit = process.wait();
  output.out = read_file(dir.file("out"));
  output.err = read_file(dir.file("err"));
  return output;
}

uint64_t proc_status(pid_t pid, const std::string& field) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with(field + ":")) {
      return std::strtoull(line.c_str() + field.size() + 1, nullptr, 10);
    }
  }
  throw std::runtime_error("no " + field + " in the status of process " + std::to_string(pid));
}

Words thread_names(pid_t pid) {
  Words names;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::string name = read_file(task.path() / "comm");
    if (name.empty()) continue;  // it ended meanwhile
    name.pop_back();
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace cswap::test
