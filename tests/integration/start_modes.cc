#include "tests/integration/start_modes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace cswap::test {
namespace {

void require_clean(const Exit& exit, const std::string& log) {
  check_log(log);
  if (exit.clean()) return;
  throw std::runtime_error("ended with code " + std::to_string(exit.code) + ", signal " +
                           std::to_string(exit.signal) + ": " + log);
}

// -f, a daemon, or --run: a server on a unix socket.
class SocketServer final : public StartedServer {
 public:
  SocketServer(Way way, const Words& options, const Words& parameters) : way_(way) {
    Words all = {"-U", dir_.file("nbd.sock")};
    if (way == Way::kForeground) all.push_back("-f");
    if (way == Way::kRun) {
      // Runs until somebody has opened and closed the pipe.
      if (::mkfifo(dir_.file("fifo").c_str(), 0600) != 0) throw std::runtime_error("mkfifo");
      all.insert(all.end(), {"--run", "cat " + dir_.file("fifo")});
    }
    all.insert(all.end(), options.begin(), options.end());
    if (way == Way::kDaemon) become_subreaper();
    process_ =
        Process(command(all, parameters), server_environment(), dir_.file("log"), dir_.file("log"));
    if (way == Way::kDaemon) {
      require_clean(process_.wait(), log());
      process_ = Process::adopt(read_pid());
    } else if (!process_.wait_for_file(dir_.file("pid"))) {
      throw std::runtime_error("nbdkit did not start: " + log());
    }
    pid_ = read_pid();
    client_ = std::make_unique<NbdClient>(dir_.file("nbd.sock"));
  }

  pid_t pid() const override { return pid_; }
  NbdClient& client() override { return *client_; }

  void stop() override {
    client_.reset();
    await_no_connections(pid_);
    if (way_ == Way::kRun) {
      ::close(::open(dir_.file("fifo").c_str(), O_WRONLY));
    } else {
      process_.signal(SIGTERM);
    }
    require_clean(process_.wait(), log());
    await("the server to end", [this] { return ::kill(pid_, 0) != 0; });
  }

 private:
  [[nodiscard]] std::string log() const { return read_file(dir_.file("log")); }

  const Way way_;
  Process process_;
  pid_t pid_ = -1;
  std::unique_ptr<NbdClient> client_;
};

// libnbd starts it, with a connection on its standard input or with a listening socket.
class LibnbdServer final : public StartedServer {
 public:
  LibnbdServer(Way way, const Words& options, const Words& parameters)
      : way_(way), client_(std::make_unique<NbdClient>(NbdClient::unconnected())) {
    Words all = way == Way::kStdin ? Words{"-s"} : Words{"-f"};
    all.insert(all.end(), options.begin(), options.end());
    Words words = {"env"};
    const Words environment = server_environment();
    words.insert(words.end(), environment.begin(), environment.end());
    const Words rest = command(all, parameters);
    words.insert(words.end(), rest.begin(), rest.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const int status = way == Way::kStdin
                           ? nbd_connect_command(client_->handle(), argv.data())
                           : nbd_connect_systemd_socket_activation(client_->handle(), argv.data());
    if (status != 0) throw std::runtime_error(nbd_get_error());
    pid_ = read_pid();
  }

  pid_t pid() const override { return pid_; }
  NbdClient& client() override { return *client_; }
  void stop() override {
    nbd_shutdown(client_->handle(), 0);
    if (way_ == Way::kActivation) await_no_connections(pid_);
    client_.reset();  // libnbd ends the server and waits for it
    await("the server to end", [this] { return ::kill(pid_, 0) != 0; });
  }

 private:
  const Way way_;
  std::unique_ptr<NbdClient> client_;
  pid_t pid_ = -1;
};

}  // namespace

Words StartedServer::command(const Words& options, const Words& parameters) const {
  Words all_options = options;
  all_options.insert(all_options.end(), {"-P", dir_.file("pid")});
  Words all_parameters = parameters;
  all_parameters.push_back("stats=unix:" + stats_socket());
  return nbdkit_command(all_options, all_parameters);
}

pid_t StartedServer::read_pid() const {
  long pid = 0;
  // A daemon writes it after the command that started it has ended.
  await("the server to write its pid", [&] {
    const std::string text = read_file(dir_.file("pid"));
    if (text.ends_with('\n')) pid = std::strtol(text.c_str(), nullptr, 10);
    return pid > 0;
  });
  return static_cast<pid_t>(pid);
}

const char* way_name(Way way) {
  constexpr const char* kNames[] = {"-f", "daemon", "--run", "-s", "socket activation"};
  return kNames[static_cast<size_t>(way)];
}

std::unique_ptr<StartedServer> start(Way way, const Words& options, const Words& parameters) {
  if (way == Way::kStdin || way == Way::kActivation) {
    return std::make_unique<LibnbdServer>(way, options, parameters);
  }
  return std::make_unique<SocketServer>(way, options, parameters);
}

}  // namespace cswap::test
