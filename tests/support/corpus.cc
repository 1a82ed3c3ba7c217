#include "tests/support/corpus.h"

#include <zstd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

namespace cswap::test {
namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "corpus: %s\n", what.c_str());
  std::abort();
}

std::vector<Page> read_pages(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> packed((std::istreambuf_iterator<char>(file)),
                                 std::istreambuf_iterator<char>());
  const unsigned long long bytes = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (bytes == ZSTD_CONTENTSIZE_ERROR || bytes == ZSTD_CONTENTSIZE_UNKNOWN) {
    fail(path.string() + " is no zstd file that states its size");
  }
  std::vector<Page> pages(bytes / kPageBytes);
  const size_t length =
      ZSTD_decompress(pages.data(), pages.size() * kPageBytes, packed.data(), packed.size());
  if (ZSTD_isError(length)) fail(path.string() + ": " + ZSTD_getErrorName(length));
  return pages;
}

std::vector<Corpus> read_corpora() {
  const char* const given = std::getenv("CSWAP_CORPUS");
  const std::filesystem::path folder = given != nullptr ? given : CSWAP_TEST_CORPUS;
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().string().ends_with(".pages.zst")) paths.push_back(entry.path());
  }
  if (paths.empty()) fail("no *.pages.zst in " + folder.string());
  std::sort(paths.begin(), paths.end());
  std::vector<Corpus> corpora;
  for (const auto& path : paths) {
    corpora.push_back({path.stem().stem().string(), read_pages(path)});
  }
  return corpora;
}

}  // namespace

const std::vector<Corpus>& corpora() {
  static const std::vector<Corpus> all = read_corpora();
  return all;
}

const std::vector<Page>& corpus_pages() {
  static const std::vector<Page> all = [] {
    std::vector<Page> pages;
    for (const Corpus& corpus : corpora()) {
      pages.insert(pages.end(), corpus.pages.begin(), corpus.pages.end());
    }
    return pages;
  }();
  return all;
}

void vary(Page& page, uint64_t seed) {
  if (seed == 0) return;
  Random random(seed);
  // A run of neighbouring bytes changes with every word: the literals of a few places differ.
  for (int i = 0; i < 4; ++i) {
    const size_t at = random.below(kPageBytes / 8) * 8;
    uint64_t word;
    std::memcpy(&word, page.data() + at, sizeof word);
    word ^= random() & 0xffff;
    std::memcpy(page.data() + at, &word, sizeof word);
  }
}

Page random_page(uint64_t seed) {
  Random random(seed);
  Page page;
  for (size_t at = 0; at < kPageBytes; at += 8) {
    const uint64_t word = random();
    std::memcpy(page.data() + at, &word, sizeof word);
  }
  return page;
}

Page stamped_page(uint64_t index, uint64_t generation) {
  Page page;
  for (size_t at = 0; at < kPageBytes; at += 16) {
    // Position in the page too, so that a shifted page is seen.
    const uint64_t first = index << 16 | at;
    std::memcpy(page.data() + at, &first, sizeof first);
    std::memcpy(page.data() + at + 8, &generation, sizeof generation);
  }
  return page;
}

uint64_t test_seed() {
  const char* const given = std::getenv("CSWAP_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device()();
  std::printf("seed: CSWAP_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

}  // namespace cswap::test
