#include "tests/http/exposition.h"

#include <charconv>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string_view>

#include "plugin/utf8.h"

namespace cswap::test {
namespace {

bool name_char(char c, bool first, bool colon) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (colon && c == ':') ||
         (!first && c >= '0' && c <= '9');
}

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  Exposition read() {
    if (text_.empty() || text_.back() != '\n') fail("the text does not end in a newline");
    if (to_valid_utf8(text_) != text_) fail("the text is not UTF-8");
    for (size_t at = 0; at < text_.size();) {
      const size_t end = text_.find('\n', at);
      line_ = std::string_view(text_).substr(at, end - at);
      at = end + 1;
      rest_ = line_;
      read_line();
    }
    check_histograms();
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(what + ": " + std::string(line_.substr(0, 200)));
  }

  void expect(bool ok, const char* what) const {
    if (!ok) fail(what);
  }

  bool take(std::string_view prefix) {
    if (!rest_.starts_with(prefix)) return false;
    rest_.remove_prefix(prefix.size());
    return true;
  }

  std::string take_name(bool colon) {
    size_t n = 0;
    while (n < rest_.size() && name_char(rest_[n], n == 0, colon)) ++n;
    expect(n > 0, "a name is missing");
    std::string name(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return name;
  }

  void read_line() {
    if (take("# HELP ")) {
      family_ = take_name(true);
      expect(take(" ") && !rest_.empty(), "HELP is empty");
      expect(rest_.find('\\') == std::string_view::npos, "HELP holds a backslash");
      expect(out_.families.emplace(family_, Exposition::Family{"", std::string(rest_)}).second,
             "the family comes twice");
    } else if (take("# TYPE ")) {
      expect(take_name(true) == family_, "TYPE is not that of the family before");
      expect(take(" "), "TYPE without a type");
      Exposition::Family& family = out_.families.at(family_);
      expect(family.type.empty(), "TYPE comes twice");
      family.type = std::string(rest_);
      check_family(family);
    } else {
      read_sample();
    }
  }

  void check_family(const Exposition::Family& family) const {
    expect(family.type == "counter" || family.type == "gauge" || family.type == "histogram",
           "unknown type");
    expect(family_.ends_with("_total") == (family.type == "counter"), "_total is for counters");
    expect(family_.starts_with("cswap_"), "the name lacks the prefix");
    for (const char* unit : {"_ns", "_us", "_ms", "_kb", "_kib", "_mb", "_mib", "_percent"}) {
      expect(family_.find(unit + std::string("_")) == std::string::npos && !family_.ends_with(unit),
             "not a base unit");
    }
  }

  std::string take_label_value() {
    expect(take("\""), "a label value does not start with a quote");
    std::string value;
    while (!take("\"")) {
      expect(!rest_.empty(), "a label value does not end");
      char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '\\') {
        expect(!rest_.empty(), "an escape does not end");
        c = rest_.front();
        rest_.remove_prefix(1);
        expect(c == 'n' || c == '\\' || c == '"', "unknown escape");
        if (c == 'n') c = '\n';
      }
      value += c;
    }
    return value;
  }

  void read_sample() {
    const std::string name = take_name(true);
    expect(!family_.empty() && !out_.families.at(family_).type.empty(), "a sample without TYPE");
    expect(out_.family_of(name) == family_, "a sample outside its family");
    Exposition::Labels labels;
    if (take("{")) {
      std::set<std::string> names;
      do {
        std::string label = take_name(false);
        expect(names.insert(label).second, "a label comes twice");
        expect(take("="), "a label without a value");
        labels.emplace_back(std::move(label), take_label_value());
      } while (take(","));
      expect(take("}"), "labels do not end");
    }
    expect(take(" "), "a sample without a value");
    double value = 0;
    const auto [end, status] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    expect(status == std::errc() && end == rest_.data() + rest_.size(), "not a number");
    expect(std::isfinite(value) && value >= 0, "not a finite number from 0 up");
    const Exposition::Series series{name, labels};
    expect(out_.samples.emplace(series, value).second, "the series comes twice");
    out_.sample_texts.emplace(series, rest_);
    if (name == family_ + "_bucket") add_bucket(name, labels, value);
  }

  // Buckets must come in order, each at least the one before, the last one +Inf.
  struct Buckets {
    double bound = -1;
    double count = 0;
  };

  void add_bucket(const std::string& name, Exposition::Labels labels, double count) {
    expect(!labels.empty() && labels.back().first == "le", "a bucket without le");
    const std::string le = labels.back().second;
    labels.pop_back();
    double bound = 0;
    if (le == "+Inf") {
      bound = std::numeric_limits<double>::infinity();
    } else {
      const auto [end, status] = std::from_chars(le.data(), le.data() + le.size(), bound);
      expect(status == std::errc() && end == le.data() + le.size(), "le is not a number");
    }
    Buckets& buckets = buckets_[{name.substr(0, name.size() - 7), labels}];
    expect(bound > buckets.bound, "buckets are not in order");
    expect(count >= buckets.count, "buckets are not cumulative");
    buckets = {bound, count};
  }

  void check_histograms() {
    for (const auto& [series, buckets] : buckets_) {
      line_ = series.first;
      expect(std::isinf(buckets.bound), "no +Inf bucket");
      const auto count = out_.samples.find({series.first + "_count", series.second});
      expect(count != out_.samples.end() && count->second == buckets.count,
             "_count is not the last bucket");
      expect(out_.samples.contains({series.first + "_sum", series.second}), "no _sum");
    }
  }

  const std::string& text_;
  std::string_view line_;
  std::string_view rest_;
  std::string family_;
  Exposition out_;
  std::map<Exposition::Series, Buckets> buckets_;
};

}  // namespace

std::string Exposition::family_of(const std::string& sample_name) const {
  for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
    if (!sample_name.ends_with(suffix)) continue;
    std::string base = sample_name.substr(0, sample_name.size() - suffix.size());
    const auto family = families.find(base);
    if (family != families.end() && family->second.type == "histogram") return base;
  }
  return sample_name;
}

Exposition parse_exposition(const std::string& text) { return Reader(text).read(); }

}  // namespace cswap::test
