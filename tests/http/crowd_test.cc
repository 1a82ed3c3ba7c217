// Many clients at once: who has to give way, and that an honest one never does.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>

#include "core/stats.h"
#include "tests/http/client.h"
#include "tests/http/exposition.h"

namespace cswap::test {
namespace {

using namespace std::chrono_literals;

constexpr size_t kPlaces = 4;

StatsLimits few_places() {
  StatsLimits limits;
  limits.connections = kPlaces;
  limits.newcomer = 1ms;
  return limits;
}

// A client that took a reply and keeps its connection.
Client proven(const UnixServer& server) {
  Client client = server.connect();
  REQUIRE(client.get("/metrics").status == 200);
  return client;
}

TEST_CASE("the oldest that never completed a request gives way first") {
  const UnixServer server(few_places());
  Client kept1 = proven(server);
  Client unproven1 = server.connect();
  Client kept2 = proven(server);
  Client unproven2 = server.connect();
  Client newcomer = proven(server);
  CHECK(unproven1.closed_by_server());
  CHECK(unproven2.get("/metrics").status == 200);
  CHECK(kept1.get("/metrics").status == 200);
  CHECK(kept2.get("/metrics").status == 200);
}

TEST_CASE("sending more of a head does not make a client younger") {
  const UnixServer server(few_places());
  Client old = server.connect();
  old.send("GET");
  Client young1 = server.connect();
  Client young2 = server.connect();
  Client kept = proven(server);
  old.send(" /metrics");
  CHECK(kept.get("/metrics").status == 200);
  Client newcomer = proven(server);
  CHECK(old.closed_by_server());
  CHECK(young1.get("/metrics").status == 200);
  CHECK(young2.get("/metrics").status == 200);
  CHECK(kept.get("/metrics").status == 200);
}

TEST_CASE("with only kept-alive connections the longest idle gives way") {
  const UnixServer server(few_places());
  std::vector<Client> kept;
  for (size_t i = 0; i < kPlaces; ++i) kept.push_back(proven(server));
  CHECK(kept[0].get("/metrics").status == 200);  // now the second is the longest idle
  Client newcomer = proven(server);
  CHECK(kept[1].closed_by_server());
  for (const size_t i : {0u, 2u, 3u}) CHECK(kept[i].get("/metrics").status == 200);
}

TEST_CASE("who is within a request keeps its place before who is idle") {
  const UnixServer server(few_places());
  std::vector<Client> kept;
  for (size_t i = 0; i < kPlaces; ++i) kept.push_back(proven(server));
  kept[0].send("GET /metrics");
  CHECK(kept[1].get("/none").status == 404);  // by now the server has seen the half request
  Client newcomer = proven(server);
  CHECK(kept[2].closed_by_server());
  kept[0].send(" HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(kept[0].receive().status == 200);
}

TEST_CASE("a refused client that does not go gives way before all others") {
  const UnixServer server(few_places());
  Client unproven = server.connect();
  Client refused = server.connect();
  refused.send("junk\r\n\r\n");
  CHECK(refused.receive().status == 400);
  Client kept1 = proven(server);
  Client kept2 = proven(server);
  Client newcomer = proven(server);
  CHECK(refused.closed_by_server());
  CHECK(unproven.get("/metrics").status == 200);
  CHECK(kept1.get("/metrics").status == 200);
}

TEST_CASE("replies that are not read are bounded all together") {
  StatsLimits limits;
  limits.reply_bytes = 16 << 20;
  const std::vector<std::string> names(10, std::string(4000, 'n'));  // some 4 MB a reply
  const UnixServer server(limits, [&names] { return sample_pool(names); });
  std::vector<Client> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(server.connect());
    clients.back().send(get_request("/metrics"));
  }
  const Reply honest = server.get("/metrics");
  CHECK(honest.status == 200);
  // The first to stop reading are cut off, not those after them.
  const size_t fit = limits.reply_bytes / honest.body.size();
  REQUIRE(fit + 2 < clients.size());
  CHECK(clients.front().receive().status == 0);
  CHECK(clients.back().receive().status == 200);
}

// 500 clients that send a byte now and then, and come back when they are cut off. One thread.
class SlowCrowd {
 public:
  explicit SlowCrowd(const UnixServer& server) : server_(server) {
    for (int i = 0; i < kClients; ++i) clients_.push_back(server_.connect());
    thread_ = std::thread([this] { run(); });
  }

  ~SlowCrowd() { join(); }

  // Ends the coming back, and hands over the clients that are left.
  std::vector<Client> stop() {
    join();
    return std::move(clients_);
  }

  [[nodiscard]] int cut_off() const { return cut_off_; }

 private:
  static constexpr int kClients = 500;

  void join() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }

  void run() {
    constexpr std::string_view kHead = "GET /metrics HTTP/1.1\r\nHost: x\r\nX: ";
    std::vector<size_t> sent(kClients, 0);
    while (!stopping_) {
      for (size_t i = 0; i < clients_.size(); ++i) {
        const char byte = sent[i] < kHead.size() ? kHead[sent[i]] : 'a';
        ++sent[i];
        if (!clients_[i].is_closed() && clients_[i].send({&byte, 1})) continue;
        clients_[i] = server_.connect();
        sent[i] = 0;
        ++cut_off_;
      }
      // Paces the crowd: these are slow clients.
      ::poll(nullptr, 0, 20);
    }
  }

  const UnixServer& server_;
  std::vector<Client> clients_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> cut_off_ = 0;
  std::thread thread_;
};

TEST_CASE("500 slow clients neither lock an honest one out nor stay") {
  const size_t before = open_descriptors();
  {
    StatsLimits limits;
    limits.head = 500ms;
    limits.request = 1s;
    const UnixServer server(limits);
    Client kept = proven(server);
    SlowCrowd crowd(server);
    size_t most = 0;
    int answered = 0;
    // Until every slow client was cut off once, so that the crowd is really there.
    for (; answered < 20 || crowd.cut_off() < 500; ++answered) {
      CHECK(server.get("/metrics").status == 200);
      REQUIRE(kept.get("/metrics").status == 200);
      most = std::max(most, open_descriptors());
    }
    MESSAGE(answered << " scrapes, " << crowd.cut_off() << " slow clients cut off");
    CHECK(most < before + 500 + limits.connections + 16);
    for (Client& client : crowd.stop()) CHECK(client.closed_by_server());
    CHECK(kept.get("/metrics").status == 200);
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("50 clients that never read hold nobody up and are closed") {
  StatsLimits limits;
  limits.reply = 500ms;
  const UnixServer server(limits);
  std::string many;
  for (int i = 0; i < 200; ++i) many += get_request("/metrics");
  std::vector<Client> deaf;
  for (int i = 0; i < 50; ++i) {
    deaf.push_back(server.connect());
    deaf.back().send(many);
  }
  Client kept = proven(server);
  while (!std::all_of(deaf.begin(), deaf.end(), [](const Client& c) { return c.is_closed(); })) {
    CHECK(server.get("/metrics").status == 200);
    REQUIRE(kept.get("/metrics").status == 200);
  }
}

// How often a value that may only rise fell between scrapes.
int falls_seen(const UnixServer& server) {
  int falls = 0;
  Client client = server.connect();
  std::map<Exposition::Series, double> seen;
  for (int scrape = 0; scrape < 50; ++scrape) {
    const Exposition now = parse_exposition(client.get("/metrics").body);
    for (const auto& [series, value] : now.samples) {
      const std::string type = now.families.at(now.family_of(series.first)).type;
      if (type == "gauge") continue;
      if (value < seen[series]) ++falls;
      seen[series] = value;
    }
  }
  if (seen[{"cswap_notify_free_pages_total", {{"tenant", ""}}}] == 0) {
    throw std::runtime_error("nothing was counted");
  }
  return falls;
}

TEST_CASE("counters never fall, whoever scrapes while whatever is counted") {
  std::vector<StatsShard> shards(2);
  const UnixServer server({}, [&shards] {
    PoolSnapshot pool;
    pool.tenants.push_back(sum_shards(shards));
    return pool;
  });
  std::atomic<bool> stopping = false;
  std::vector<std::thread> writers;
  for (StatsShard& shard : shards) {
    writers.emplace_back([&shard, &stopping] {
      for (uint64_t n = 0; !stopping; ++n) {
        shard.add(Counter::kNotifyFree);
        shard.add(Gauge::kStoredPages, n % 2 == 0 ? 1 : -1);
        shard.add_swpout(n % 5);
        shard.add_latency(Operation::kStore, 0, n * 1000);
      }
    });
  }
  std::atomic<int> falls = 0;
  std::atomic<int> whole = 0;
  std::vector<std::thread> scrapers;
  for (int i = 0; i < 4; ++i) {
    scrapers.emplace_back([&server, &falls, &whole] {
      try {
        falls += falls_seen(server);
        ++whole;
      } catch (const std::exception& error) {
        MESSAGE(error.what());
      }
    });
  }
  for (std::thread& scraper : scrapers) scraper.join();
  stopping = true;
  for (std::thread& writer : writers) writer.join();
  CHECK(falls == 0);
  CHECK(whole == 4);
}

}  // namespace
}  // namespace cswap::test
