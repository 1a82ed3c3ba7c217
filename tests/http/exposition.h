// A strict reader of the Prometheus text format, for tests: what it accepts, every scraper accepts.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cswap::test {

struct Exposition {
  struct Family {
    std::string type;
    std::string help;
  };
  using Labels = std::vector<std::pair<std::string, std::string>>;  // in order, unescaped
  using Series = std::pair<std::string, Labels>;

  std::map<std::string, Family> families;
  std::map<Series, double> samples;
  std::map<Series, std::string> sample_texts;  // the same values as written

  // Throws std::out_of_range for a series that is not there.
  [[nodiscard]] double value(const std::string& name, const Labels& labels = {}) const {
    return samples.at({name, labels});
  }

  // The family that a sample belongs to: histograms have samples with suffixes.
  [[nodiscard]] std::string family_of(const std::string& sample_name) const;
};

// Throws std::runtime_error with the line and what is wrong with it. Beyond the format it demands
// what CASES asks of ours: HELP and TYPE before the samples, `_total` on counters and only there,
// base units, finite values that are not negative, histograms that are whole and cumulative.
[[nodiscard]] Exposition parse_exposition(const std::string& text);

}  // namespace cswap::test
