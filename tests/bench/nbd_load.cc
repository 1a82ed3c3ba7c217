// Load for an NBD server with real pages, which fio cannot send: connections that each keep a
// number of requests in flight, at random offsets, for some seconds. Prints a JSON object with the
// throughput, latencies, and the CPU time that the server took meanwhile.
// usage: nbd_load URI randwrite|randread BLOCK_BYTES CONNECTIONS DEPTH SECONDS [SERVER_PID]
// The device is filled before, so that writes go over older content.

#include <time.h>

#include <atomic>
#include <latch>

#include "tests/bench/nbd_client.h"

namespace {

using namespace cswap;
using namespace cswap::bench;
using Clock = std::chrono::steady_clock;

constexpr double kMostRequestsASecond = 5e5;

struct Load {
  std::string uri;
  bool write = false;
  size_t block_bytes = 0;
  size_t connections = 0;
  size_t depth = 0;
  double seconds = 0;
};

class Connection {
 public:
  Connection(const Load& load, uint64_t seed)
      : load_(load),
        random_(seed),
        client_(load.uri),
        blocks_(client_.bytes() / load.block_bytes),
        requests_(load.depth),
        samples_(static_cast<size_t>(kMostRequestsASecond * load.seconds) + load.depth) {
    for (Request& request : requests_) {
      request.connection = this;
      request.loaded.resize(load.block_bytes);
      idle_.push_back(&request);
    }
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Writes the whole device once.
  void fill() { client_.fill(blocks_ * load_.block_bytes, random_); }
  // Keeps requests in flight until `until`; what is still in flight then does not count.
  void run(Clock::time_point until) {
    while (Clock::now() < until) {
      while (!idle_.empty()) start_one();
      if (nbd_poll(client_.handle(), -1) < 0) NbdClient::fail_nbd();
    }
    counting_ = false;
    while (idle_.size() < requests_.size()) {
      if (nbd_poll(client_.handle(), -1) < 0) NbdClient::fail_nbd();
    }
  }
  [[nodiscard]] const Samples& samples() const { return samples_; }

 private:
  struct Request {
    Connection* connection = nullptr;
    Clock::time_point start;
    std::vector<std::byte> loaded;
  };

  void start_one() {
    Request* const request = idle_.back();
    idle_.pop_back();
    const uint64_t offset = random_.below(blocks_) * load_.block_bytes;
    const nbd_completion_callback done = {
        .callback = &Connection::finish, .user_data = request, .free = nullptr};
    request->start = Clock::now();
    int64_t cookie;
    if (load_.write) {
      const auto data = corpus_run(random_(), load_.block_bytes / kPageBytes);
      cookie = nbd_aio_pwrite(client_.handle(), data.data(), data.size(), offset, done, 0);
    } else {
      cookie = nbd_aio_pread(client_.handle(), request->loaded.data(), request->loaded.size(),
                             offset, done, 0);
    }
    if (cookie < 0) NbdClient::fail_nbd();
  }
  static int finish(void* data, int* error) {
    NbdClient::check_answer(*error);
    auto* const request = static_cast<Request*>(data);
    Connection& self = *request->connection;
    if (self.counting_) {
      const auto taken = Clock::now() - request->start;
      self.samples_.add(static_cast<uint64_t>(std::chrono::nanoseconds(taken).count()));
    }
    self.idle_.push_back(request);
    return 1;  // retires it
  }

  const Load& load_;
  Random random_;
  const NbdClient client_;
  const uint64_t blocks_;
  std::vector<Request> requests_;
  std::vector<Request*> idle_;
  Samples samples_;
  bool counting_ = true;
};

// CPU time of another process, user and system, of all its threads: utime and stime of
// /proc/PID/stat, but exact.
double cpu_seconds(pid_t pid) {
  clockid_t clock;
  timespec time;
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) {
    fail("no process " + std::to_string(pid));
  }
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

void measure(const Load& load, pid_t server) {
  std::vector<std::unique_ptr<Connection>> connections;
  for (size_t i = 0; i < load.connections; ++i) {
    connections.push_back(std::make_unique<Connection>(load, i + 1));
  }
  connections[0]->fill();

  const double cpu_before = server > 0 ? cpu_seconds(server) : 0;
  const Clock::time_point start = Clock::now();
  const auto until = start + std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double>(load.seconds));
  std::vector<std::jthread> threads;
  for (const auto& connection : connections) {
    threads.emplace_back([&connection, until] { connection->run(until); });
  }
  std::this_thread::sleep_until(until);
  const double cpu = server > 0 ? cpu_seconds(server) - cpu_before : 0;
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  threads.clear();

  Samples all;
  for (const auto& connection : connections) all.append(connection->samples());
  const double bytes = static_cast<double>(all.count()) * static_cast<double>(load.block_bytes);
  std::printf(
      "{\"block_bytes\": %zu, \"connections\": %zu, \"depth\": %zu, \"seconds\": %.3f, "
      "\"bytes_per_s\": %.0f, \"server_cpu_s\": %.3f, \"server_cores\": %.3f, "
      "\"bytes_per_server_cpu_s\": %.0f,\n \"latency\": %s}\n",
      load.block_bytes, load.connections, load.depth, seconds, bytes / seconds, cpu, cpu / seconds,
      cpu > 0 ? bytes / cpu : 0, all.json().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string rw = argc > 2 ? argv[2] : "";
  if (argc < 7 || argc > 8 || (rw != "randwrite" && rw != "randread")) {
    bench::fail(
        "usage: nbd_load URI randwrite|randread BLOCK_BYTES CONNECTIONS DEPTH SECONDS "
        "[SERVER_PID]");
  }
  const auto number = [argv](int i) { return std::strtoull(argv[i], nullptr, 10); };
  Load load{argv[1],   rw == "randwrite", number(3),
            number(4), number(5),         std::strtod(argv[6], nullptr)};
  if (load.block_bytes == 0 || load.block_bytes % kPageBytes != 0 || load.connections == 0 ||
      load.depth == 0) {
    bench::fail("nbd_load: blocks are whole pages, and one connection and request is the least");
  }
  measure(load, argc == 8 ? static_cast<pid_t>(number(7)) : 0);
  return 0;
}
