#include "tests/model/content.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace cswap::test {
namespace {

// The first word of a signed page. Its top four bits are the style; a slot word holds it inline
// when they are equal to each other.
constexpr std::array<uint64_t, 4> kStyleBits = {0x0, 0x7, 0x1, 0x2};
constexpr int kStyleShift = 60;
constexpr int kWriterShift = 52;
constexpr int kPageIndexShift = 36;
constexpr uint64_t kGenerationMask = (1ull << kPageIndexShift) - 1;

uint64_t first_word(const Signature& signature) {
  return kStyleBits[static_cast<size_t>(signature.style)] << kStyleShift |
         signature.writer << kWriterShift | signature.page << kPageIndexShift |
         signature.generation;
}

Page page_of_words(uint64_t even, uint64_t odd) {
  Page page;
  for (size_t at = 0; at < kPageBytes; at += 16) {
    std::memcpy(page.data() + at, &even, sizeof even);
    std::memcpy(page.data() + at + 8, &odd, sizeof odd);
  }
  return page;
}

Page any_page(uint64_t index, Random& random) {
  switch (random.below(6)) {
    case 0: {
      const auto& pages = corpus_pages();
      Page page = pages[random.below(pages.size())];
      vary(page, random());
      return page;
    }
    case 1:
      return random_page(random());
    case 2:
      return stamped_page(index, random());
    case 3: {
      const uint64_t word = random.below(1ull << 60);
      return page_of_words(word, word);
    }
    case 4: {
      const uint64_t word = random() | 1ull << 62;  // and bit 63 or not: both do not fit
      return page_of_words(word & ~(1ull << 61), word & ~(1ull << 61));
    }
    default:
      return {};
  }
}

}  // namespace

void fill(uint64_t offset, std::span<std::byte> to, Random& random) {
  Page page{};
  bool first = true;
  while (!to.empty()) {
    // Neighbours are often of one kind, and as often not.
    if (first || random.below(4) != 0) page = any_page(offset >> kPageShift, random);
    first = false;
    const size_t from = offset % kPageBytes;
    const size_t bytes = std::min<size_t>(to.size(), kPageBytes - from);
    std::memcpy(to.data(), page.data() + from, bytes);
    to = to.subspan(bytes);
    offset += bytes;
  }
}

void sign(const Signature& signature, std::span<std::byte> page) {
  const uint64_t word = first_word(signature);
  Page content = page_of_words(word, word);
  if (signature.style == Signature::Style::kRandom) content = random_page(word);
  if (signature.style == Signature::Style::kCompressible) {
    content = page_of_words(word, signature.generation);
    const Page tail = random_page(word);
    // From a quarter to three quarters compressible, so that objects differ in length.
    const size_t random_bytes = 1024 + 8 * (signature.generation % 256);
    std::memcpy(content.data() + 8, tail.data(), random_bytes);
  }
  std::memcpy(content.data(), &word, sizeof word);
  std::memcpy(page.data(), content.data(), kPageBytes);
}

std::optional<Signature> signature_of(std::span<const std::byte> page) {
  uint64_t word;
  std::memcpy(&word, page.data(), sizeof word);
  const auto style = std::ranges::find(kStyleBits, word >> kStyleShift);
  if (style == kStyleBits.end()) return std::nullopt;
  Signature signature;
  signature.style = static_cast<Signature::Style>(style - kStyleBits.begin());
  signature.writer = word >> kWriterShift & 0xff;
  signature.page = word >> kPageIndexShift & 0xffff;
  signature.generation = word & kGenerationMask;
  Page expected;
  sign(signature, expected);
  if (std::memcmp(expected.data(), page.data(), kPageBytes) != 0) return std::nullopt;
  return signature;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace cswap::test
