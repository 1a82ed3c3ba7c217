#include <doctest/doctest.h>

#include <boost/json/value.hpp>
#include <boost/json/value_to.hpp>
#include <cstdio>
#include <locale>
#include <set>
#include <stdexcept>

#include "plugin/stats_format.h"
#include "plugin/utf8.h"
#include "tests/http/exposition.h"
#include "tests/http/snapshots.h"

namespace cswap::test {
namespace {

std::string json_name(const boost::json::value& json, size_t tenant) {
  return boost::json::value_to<std::string>(json.at("tenants").at(tenant).at("name"));
}

// Separators that would ruin every number if the global locale were used.
struct OddNumbers : std::numpunct<char> {
  char do_thousands_sep() const override { return '.'; }
  char do_decimal_point() const override { return ','; }
  std::string do_grouping() const override { return "\3"; }
};

const std::vector<std::string> kNastyNames = {"",
                                              "a\"b",
                                              "a\\b",
                                              "a\nb",
                                              "\\n",
                                              "\xF0\x9F\x90\xA7",
                                              "a{b=\"c\"} 1",
                                              "# HELP x y",
                                              "tab\tcr\r",
                                              std::string(4096, 'x')};

TEST_CASE("the strict parser refuses what would cost a scrape") {
  const std::string head = "# HELP cswap_x_total h\n# TYPE cswap_x_total counter\n";
  CHECK_NOTHROW((void)parse_exposition(head + "cswap_x_total{a=\"b\\\"\"} 1\n"));
  for (const char* bad :
       {"cswap_x_total 1", "cswap_x_total{a=\"b\"\"} 1\n", "cswap_x_total{a=\"b\\c\"} 1\n",
        "cswap_x_total NaN\n", "cswap_x_total -1\n", "cswap_x_total{a=\"\xFF\"} 1\n",
        "cswap_x_total 1\ncswap_x_total 2\n", "cswap_y_total 1\n", "cswap_x_total 1,5\n",
        "cswap_x_total{a=\"1\",a=\"2\"} 1\n", "\n", "# HELP cswap_y h\n# TYPE cswap_y counter\n",
        "# HELP cswap_y_total h\n# TYPE cswap_y_total gauge\n",
        "# HELP cswap_y_ms h\n# TYPE cswap_y_ms gauge\n",
        "# HELP cswap_h h\n# TYPE cswap_h histogram\ncswap_h_bucket{le=\"1\"} 2\n",
        "# HELP cswap_h h\n# TYPE cswap_h histogram\ncswap_h_count 1\ncswap_h_sum 1\n"
        "cswap_h_bucket{le=\"1\"} 2\ncswap_h_bucket{le=\"+Inf\"} 1\n"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS((void)parse_exposition(head + bad), std::runtime_error);
  }
}

TEST_CASE("nasty tenant names come back unchanged from both forms") {
  const PoolSnapshot pool = pool_of(kNastyNames);
  const Exposition text = parse_exposition(format_prometheus(pool));
  const boost::json::value json = parsed_json(pool);
  for (size_t i = 0; i < kNastyNames.size(); ++i) {
    CAPTURE(kNastyNames[i]);
    CHECK(text.samples.contains({"cswap_stored_pages", {{"tenant", kNastyNames[i]}}}));
    CHECK(json_name(json, i) == kNastyNames[i]);
  }
}

TEST_CASE("names that are not UTF-8 are made so, and stay distinct") {
  const std::string mark = "\xEF\xBF\xBD";
  const PoolSnapshot pool = pool_of({"a\xFF", "a\xFE", "a" + mark, std::string("a\0b", 3)});
  const std::vector<std::string> labels = tenant_labels(pool);
  CHECK(labels == std::vector<std::string>{"a" + mark + "#2", "a" + mark + "#3", "a" + mark,
                                           "a" + mark + "b"});
  const Exposition text = parse_exposition(format_prometheus(pool));
  for (const std::string& label : labels) {
    CHECK(text.samples.contains({"cswap_stored_pages", {{"tenant", label}}}));
  }
  CHECK(json_name(parsed_json(pool), 1) == labels[1]);
}

TEST_CASE("UTF-8 is checked to the letter") {
  for (const char* valid :
       {"", "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    CHECK(to_valid_utf8(valid) == valid);
  }
  for (const char* invalid :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xC2", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE2\x82",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC2\x41"}) {
    const std::string made = to_valid_utf8(invalid);
    CHECK(made.find("\xEF\xBF\xBD") == 0);
    CHECK(to_valid_utf8(made) == made);
  }
  CHECK(to_valid_utf8("\xE2\x82z") == "\xEF\xBF\xBD\xEF\xBF\xBDz");
}

TEST_CASE("whole numbers are exact, and above 2^53 they keep their order") {
  PoolSnapshot pool = pool_of({""});
  uint64_t before = 0;
  for (const uint64_t bytes :
       {uint64_t{1} << 44, (uint64_t{1} << 44) + 1, (uint64_t{1} << 53) - 1, uint64_t{1} << 53}) {
    pool.mem_used_total = bytes;
    CHECK(parse_exposition(format_prometheus(pool))
              .sample_texts.at({"cswap_mem_used_total_bytes", {}}) == std::to_string(bytes));
  }
  double shown_before = 0;
  for (int shift = 53; shift < 64; ++shift) {
    for (const int step : {-1, 0, 1}) {
      const uint64_t value = (uint64_t{1} << shift) + static_cast<uint64_t>(step);
      REQUIRE(value > before);
      before = value;
      pool.tenants[0].notify_free = value;
      const double shown = parse_exposition(format_prometheus(pool))
                               .value("cswap_notify_free_pages_total", {{"tenant", ""}});
      CHECK(shown >= shown_before);
      shown_before = shown;
    }
  }
  pool.tenants[0].notify_free = ~uint64_t{0};
  CHECK(parsed_json(pool).at("tenants").at(0).at("notify_free").as_uint64() == ~uint64_t{0});
}

TEST_CASE("the program's locale changes nothing") {
  PoolSnapshot pool = pool_of({"a"});
  pool.mem_used_total = 1234567890123;
  pool.tenants[0].latency[0] = latencies({{0, 1500}, {4, 2500}});
  pool.free_latency = latencies({{6, 1500}});
  const std::string text = format_prometheus(pool);
  const std::string json = format_json(pool);
  const std::locale classic =
      std::locale::global(std::locale(std::locale::classic(), new OddNumbers));
  const std::string odd_text = format_prometheus(pool);
  const std::string odd_json = format_json(pool);
  std::locale::global(classic);
  CHECK(odd_text == text);
  CHECK(odd_json == json);
}

TEST_CASE("every statistic of DESIGN.md is there, with its type and labels") {
  PoolSnapshot pool = pool_of({"t"});
  TenantSnapshot& tenant = pool.tenants[0];
  pool.mem_used_total = 1, pool.mem_used_max = 2, pool.mem_limit = 3, pool.pool_total_size = 4;
  pool.metadata_size = 5, pool.headroom = 6, pool.limit_reached = true, pool.pages_compacted = 7;
  pool.workers = 8;
  tenant.size_bytes = 9, tenant.stored_pages = 10, tenant.same_pages = 11, tenant.huge_pages = 12;
  tenant.orig_data_size = 13, tenant.compr_data_size = 14, tenant.notify_free = 15;
  tenant.pool_limit_hit = 16, tenant.reject_alloc_fail = 17, tenant.reject_compress_poor = 18;
  tenant.decompress_fail = 19, tenant.written_back_pages = 20;
  tenant.swpout = {21, 22, 23, 24, 25}, tenant.swpin = {26}, tenant.swpout_fallback = {0, 27};
  tenant.swpout[9] = 28;
  pool.alloc = "global", pool.batch = "off", pool.free = "sync";
  pool.free_waiting_objects = 29, pool.free_waiting_bytes = 30, pool.freed_in_request = 31;
  pool.freed_in_background = 32, pool.slot_cache_bytes = 33;
  pool.free_latency = latencies({{6, 5'000'000'000}});
  pool.locks.resize(1);
  pool.locks[0].name = "store";
  const Exposition text = parse_exposition(format_prometheus(pool));

  const Exposition::Labels none;
  const Exposition::Labels t = {{"tenant", "t"}};
  struct Row {
    const char* name;
    const char* type;
    Exposition::Labels labels;
    double value;
  };
  const std::vector<Row> rows = {
      {"cswap_build_info",
       "gauge",
       {{"version", CSWAP_VERSION},
        {"compressor", "zstd:3"},
        {"alloc", "global"},
        {"batch", "off"},
        {"free", "sync"}},
       1},
      {"cswap_mem_used_total_bytes", "gauge", none, 1},
      {"cswap_mem_used_max_bytes", "gauge", none, 2},
      {"cswap_mem_limit_bytes", "gauge", none, 3},
      {"cswap_pool_total_size_bytes", "gauge", none, 4},
      {"cswap_metadata_size_bytes", "gauge", none, 5},
      {"cswap_headroom_bytes", "gauge", none, 6},
      {"cswap_limit_reached", "gauge", none, 1},
      {"cswap_pages_compacted_total", "counter", none, 7},
      {"cswap_workers", "gauge", none, 8},
      {"cswap_size_bytes", "gauge", t, 9},
      {"cswap_stored_pages", "gauge", t, 10},
      {"cswap_same_pages", "gauge", t, 11},
      {"cswap_huge_pages", "gauge", t, 12},
      {"cswap_orig_data_size_bytes", "gauge", t, 13},
      {"cswap_compr_data_size_bytes", "gauge", t, 14},
      {"cswap_notify_free_pages_total", "counter", t, 15},
      {"cswap_pool_limit_hit_total", "counter", t, 16},
      {"cswap_reject_alloc_fail_total", "counter", t, 17},
      {"cswap_reject_compress_poor_total", "counter", t, 18},
      {"cswap_decompress_fail_total", "counter", t, 19},
      {"cswap_written_back_pages_total", "counter", t, 20},
      {"cswap_swpout_total", "counter", {{"tenant", "t"}, {"order", "4"}}, 25},
      {"cswap_swpin_total", "counter", {{"tenant", "t"}, {"order", "0"}}, 26},
      {"cswap_swpout_fallback_total", "counter", {{"tenant", "t"}, {"order", "1"}}, 27},
      {"cswap_swpout_total", "counter", {{"tenant", "t"}, {"order", "9"}}, 28},
      {"cswap_free_waiting_objects", "gauge", none, 29},
      {"cswap_free_waiting_bytes", "gauge", none, 30},
      {"cswap_freed_objects_total", "counter", {{"by", "request"}}, 31},
      {"cswap_freed_objects_total", "counter", {{"by", "background"}}, 32},
      {"cswap_slot_cache_bytes", "gauge", none, 33},
      {"cswap_free_latency_max_seconds", "gauge", {{"order", "6"}}, 5},
      {"cswap_latency_max_seconds",
       "gauge",
       {{"tenant", "t"}, {"operation", "load"}, {"order", "0"}},
       0}};
  std::set<std::string> names = {"cswap_latency_seconds",       "cswap_free_latency_seconds",
                                 "cswap_lock_acquired_total",   "cswap_lock_contended_total",
                                 "cswap_lock_wait_max_seconds", "cswap_lock_wait_min_seconds",
                                 "cswap_lock_wait_avg_seconds", "cswap_lock_wait_seconds_total"};
  for (const Row& row : rows) {
    CAPTURE(row.name);
    names.insert(row.name);
    REQUIRE(text.families.contains(row.name));
    CHECK(text.families.at(row.name).type == row.type);
    REQUIRE(text.samples.contains({row.name, row.labels}));
    CHECK(text.value(row.name, row.labels) == row.value);
  }
  for (const auto& family : text.families) {
    CAPTURE(family.first);
    CHECK(names.erase(family.first) == 1);
  }
  CHECK(names.empty());
}

TEST_CASE("a tenant that is gone leaves no series behind") {
  const std::string text = format_prometheus(pool_of({"stays"}));
  CHECK(text.find("gone") == std::string::npos);
  CHECK(parse_exposition(format_prometheus(pool_of({}))).families.contains("cswap_stored_pages"));
}

TEST_CASE("locks show what was waited for them, by class and by caller") {
  PoolSnapshot pool = pool_of({"a"});
  pool.locks.resize(1);
  pool.locks[0].name = "store";
  pool.locks[0].acquired = 1000;
  pool.locks[0].waits = {"", 3, 6'000'000, 4'000'000, 500'000};
  pool.locks[0].callers = {{"free", 3, 6'000'000, 4'000'000, 500'000}};

  const Exposition text = parse_exposition(format_prometheus(pool));
  const Exposition::Labels store = {{"class", "store"}};
  CHECK(text.value("cswap_lock_acquired_total", store) == 1000);
  CHECK(text.value("cswap_lock_contended_total", store) == 3);
  CHECK(text.value("cswap_lock_wait_seconds_total", store) == doctest::Approx(0.006));
  CHECK(text.value("cswap_lock_wait_max_seconds", store) == doctest::Approx(0.004));
  CHECK(text.value("cswap_lock_wait_min_seconds", store) == doctest::Approx(0.0005));
  CHECK(text.value("cswap_lock_wait_avg_seconds", store) == doctest::Approx(0.002));

  const boost::json::value json = parsed_json(pool);
  const boost::json::value& lock = json.at("locks").at(0);
  CHECK(lock.at("class").as_string() == "store");
  CHECK(lock.at("acquired").to_number<uint64_t>() == 1000);
  CHECK(lock.at("avg_wait_ns").to_number<uint64_t>() == 2'000'000);
  CHECK(lock.at("min_wait_ns").to_number<uint64_t>() == 500'000);
  CHECK(lock.at("callers").at(0).at("caller").as_string() == "free");
  CHECK(lock.at("callers").at(0).at("max_wait_ns").to_number<uint64_t>() == 4'000'000);
}

TEST_CASE("a lock that nobody waited for shows zeros") {
  PoolSnapshot pool = pool_of({"a"});
  pool.locks.resize(1);
  pool.locks[0].name = "store";
  pool.locks[0].acquired = 1000;
  const Exposition text = parse_exposition(format_prometheus(pool));
  for (const char* name : {"cswap_lock_contended_total", "cswap_lock_wait_seconds_total",
                           "cswap_lock_wait_max_seconds", "cswap_lock_wait_min_seconds",
                           "cswap_lock_wait_avg_seconds"}) {
    CAPTURE(std::string(name));
    CHECK(text.value(name, {{"class", "store"}}) == 0);
  }
}

#ifdef CSWAP_PROMTOOL
TEST_CASE("promtool has no complaint") {
  PoolSnapshot pool = pool_of(kNastyNames);
  pool.tenants[0].latency[0] = latencies({{0, 1}, {9, 1'000'000}});
  pool.free_latency = latencies({{6, 1'000}});
  pool.locks.resize(1);
  pool.locks[0].name = "store";
  FILE* promtool = popen(CSWAP_PROMTOOL " check metrics", "w");
  REQUIRE(promtool != nullptr);
  const std::string text = format_prometheus(pool);
  CHECK(std::fwrite(text.data(), 1, text.size(), promtool) == text.size());
  CHECK(pclose(promtool) == 0);
}
#endif

}  // namespace
}  // namespace cswap::test
