// Real pages for tests and benchmarks, and varied copies of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/types.h"

namespace cswap::test {

using Page = std::array<std::byte, kPageBytes>;

struct Corpus {
  std::string name;  // of the program: "gcc"
  std::vector<Page> pages;
};

// All corpora of tests/corpus, or of the directory that the environment variable CSWAP_CORPUS
// names. Aborts with a message when there are none.
[[nodiscard]] const std::vector<Corpus>& corpora();
// The same as one list.
[[nodiscard]] const std::vector<Page>& corpus_pages();

// Changes a page a little, as another process of the same program would hold it: for each seed
// differently, keeping how well it compresses. Seed 0 changes nothing.
void vary(Page& page, uint64_t seed);

// A page of random bytes.
[[nodiscard]] Page random_page(uint64_t seed);
// A page that encodes its own index and a generation all over, so that a wrong or an older page is
// told from a damaged one.
[[nodiscard]] Page stamped_page(uint64_t index, uint64_t generation);

// A small, fast generator whose state is its seed (G. L. Steele's SplitMix64).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t operator()() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [0, bound).
  uint64_t below(uint64_t bound) { return (*this)() % bound; }

 private:
  uint64_t state_;
};

// The seed of a randomised test: CSWAP_SEED, or a new one. Printed, so that it can be given again.
[[nodiscard]] uint64_t test_seed();

}  // namespace cswap::test
