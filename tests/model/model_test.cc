// The model test: random requests on several connections to a real nbdkit, against a plain array.
//
// Connections with an area of their own are checked byte for byte; others share a few pages and
// check that each is wholly one write's. At the end the statistics must agree with the array, and
// a trim of the whole device must leave nothing. The seed is printed; CSWAP_SEED repeats a run,
// but for the order in which the server answers.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/model/area_run.h"
#include "tests/model/content.h"
#include "tests/model/settings.h"
#include "tests/model/shared_run.h"
#include "tests/support/nbd_client.h"
#include "tests/support/nbd_server.h"

namespace cswap::test {
namespace {

constexpr uint64_t kAreaBytes = 8ull << 20;
// Across a border of slot clusters, for the areas end at one.
constexpr uint64_t kSharedPages = 48;
constexpr uint64_t kSharedBefore = 24;
constexpr uint64_t kSharedPagesAfter = 512;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

class ModelTest {
 public:
  explicit ModelTest(const Settings& settings)
      : settings_(settings),
        device_((settings.connections * kAreaBytes) + kSharedPagesAfter * kPageBytes),
        server_(server_options()),
        shared_(shared_area(), settings.sharing_connections) {
    make_runs();
  }

  void run() {
    run_all();
    check_everything();
    check_statistics();
    trim_everything();
    std::printf("%zu connections, %llu requests refused at the limit\n",
                areas_.size() + sharers_.size(), static_cast<unsigned long long>(refused()));
    // nbdkit ends when its clients have gone.
    areas_.clear();
    sharers_.clear();
    server_.stop();
  }

 private:
  [[nodiscard]] ServerOptions server_options() const {
    ServerOptions options;
    options.parameters = {std::to_string(device_.size()),
                          "compressor=" + settings_.compressor,
                          "same_filled=" + settings_.same_filled,
                          "checksum=" + settings_.checksum,
                          "mem_limit=" + settings_.mem_limit,
                          "accept_threshold=99",
                          "alloc=" + settings_.alloc,
                          "batch=" + settings_.batch,
                          "free=" + settings_.free};
    options.nbdkit = {"-t", std::to_string(settings_.threads)};
    if (!settings_.filter.empty()) options.nbdkit.push_back("--filter=" + settings_.filter);
    return options;
  }

  // The last area gives up its end.
  [[nodiscard]] Area shared_area() const {
    const uint64_t border = settings_.connections * kAreaBytes;
    return {border - kSharedBefore * kPageBytes,
            border + (kSharedPages - kSharedBefore) * kPageBytes};
  }

  void make_runs() {
    Random random(settings_.seed);
    uint64_t begin = 0;
    for (uint64_t i = 0; i < settings_.connections; ++i) {
      uint64_t end = (i + 1) * kAreaBytes - random.below(2 * kPageBytes);
      if (i + 1 == settings_.connections) end = shared_.area().begin;
      areas_.push_back(std::make_unique<AreaRun>(settings_, server_.socket(), Area{begin, end},
                                                 device_, random()));
      begin = end;
    }
    for (uint64_t i = 0; i < settings_.sharing_connections; ++i) {
      sharers_.push_back(
          std::make_unique<SharedRun>(settings_, server_.socket(), shared_, i, random()));
    }
  }

  void run_all() {
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::exception_ptr first;
    const auto start = [&](auto& run) {
      threads.emplace_back([&] {
        try {
          run->run();
        } catch (...) {
          const std::lock_guard guard(mutex);
          if (!first) first = std::current_exception();
        }
      });
    };
    for (auto& run : areas_) start(run);
    for (auto& run : sharers_) start(run);
    for (std::thread& thread : threads) thread.join();
    if (first) std::rethrow_exception(first);
  }

  void check_everything() {
    NbdClient client(server_.socket());
    require(client.size() == device_.size(), "wrong size");
    for (uint64_t at = 0; at < shared_.area().begin; at += kAreaBytes) {
      const uint64_t length = std::min(kAreaBytes, shared_.area().begin - at);
      const auto bytes = client.read(at, length);
      require(std::memcmp(bytes.data(), device_.data() + at, length) == 0,
              "the device differs from the model near " + std::to_string(at));
    }
    for (uint64_t page = 0; page < shared_.pages(); ++page) {
      const auto bytes = client.read(shared_.area().begin + page * kPageBytes, kPageBytes);
      const std::string wrong = shared_.check(bytes, page, shared_.floor(page));
      require(wrong.empty(), wrong);
    }
    require(all_zero(client.read(shared_.area().end, device_.size() - shared_.area().end)),
            "pages that nobody wrote are not zero");
  }

  void check_statistics() {
    const Stats stats = server_.consistent_stats();
    uint64_t least = 0;
    uint64_t most = device_.size() / kPageBytes;
    for (const auto& area : areas_) {
      least += area->filled_pages();
      most -= area->empty_pages();
    }
    require(stats["stored_pages"] >= least && stats["stored_pages"] <= most,
            "stored_pages is not within " + std::to_string(least) + " and " + std::to_string(most) +
                "\n" + stats.json());
    require(stats["pool_limit_hit"] == refused(), "pool_limit_hit is not the number of refusals, " +
                                                      std::to_string(refused()) + "\n" +
                                                      stats.json());
    require(stats["decompress_fail"] == 0, "a page could not be produced");
    require(stats["reject_alloc_fail"] == 0, "memory was refused without a limit");
    if (settings_.same_filled == "off") require(stats["same_pages"] == 0, "same_filled=off");
    if (settings_.limited()) require(refused() > 0, "the limit was never hit");
  }

  void trim_everything() {
    NbdClient client(server_.socket());
    require(client.trim(0, device_.size()) == 0, "the last trim failed");
    server_.stats_when("no objects", [](const Stats& s) { return s["pool_total_size"] == 0; });
    const Stats stats = server_.consistent_stats();
    for (const char* gauge : {"stored_pages", "same_pages", "huge_pages", "compr_data_size",
                              "orig_data_size", "free_waiting_objects"}) {
      require(stats[gauge] == 0, std::string(gauge) + " is not 0 after the trim\n" + stats.json());
    }
    // What is left describes clusters that were once in use: 1 % of the device is far above it.
    require(stats["mem_used_total"] < device_.size() / 100,
            "memory is left after the trim\n" + stats.json());
    require(all_zero(client.read(0, kAreaBytes)), "trimmed pages are not zero");
  }

  [[nodiscard]] uint64_t refused() const {
    uint64_t sum = 0;
    for (const auto& area : areas_) sum += area->refused();
    for (const auto& sharer : sharers_) sum += sharer->refused();
    return sum;
  }

  const Settings settings_;
  std::vector<std::byte> device_;  // what it must hold, but for the shared pages
  NbdServer server_;
  SharedPages shared_;
  std::vector<std::unique_ptr<AreaRun>> areas_;
  std::vector<std::unique_ptr<SharedRun>> sharers_;
};

}  // namespace
}  // namespace cswap::test

int main(int argc, char** argv) {
  using namespace cswap::test;
  Settings settings = parse_settings(Words(argv + 1, argv + argc));
  settings.seed = test_seed();
  try {
    ModelTest(settings).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "model_test: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
