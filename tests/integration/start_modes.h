// The ways to start nbdkit, for tests of what must be the same in all of them.
#pragma once

#include <memory>
#include <string>

#include "tests/support/nbd_client.h"
#include "tests/support/nbd_server.h"

namespace cswap::test {

// A server that was started in some way, ready to serve, and what a test looks at.
class StartedServer {
 public:
  virtual ~StartedServer() = default;
  [[nodiscard]] virtual pid_t pid() const = 0;
  // Connected; where the way has only one connection, always that one.
  virtual NbdClient& client() = 0;
  // Ends it in the way's own manner and waits until it has gone; throws unless it ends cleanly.
  virtual void stop() = 0;

  [[nodiscard]] std::string stats_socket() const { return dir_.file("stats.sock"); }

 protected:
  // Parameters with the statistics' address, and what all ways have in common.
  [[nodiscard]] Words command(const Words& options, const Words& parameters) const;
  [[nodiscard]] pid_t read_pid() const;

  ScratchDir dir_;
};

enum class Way { kForeground, kDaemon, kRun, kStdin, kActivation };
[[nodiscard]] const char* way_name(Way way);
inline constexpr Way kWays[] = {Way::kForeground, Way::kDaemon, Way::kRun, Way::kStdin,
                                Way::kActivation};

[[nodiscard]] std::unique_ptr<StartedServer> start(Way way, const Words& options,
                                                   const Words& parameters);

}  // namespace cswap::test
