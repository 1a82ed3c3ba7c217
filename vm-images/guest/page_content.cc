#include "page_content.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace cswap::guest {
namespace {

struct Stamp {
  uint64_t magic;
  uint64_t page;
  uint32_t region;
  uint32_t generation;
  uint64_t seed;
};
static_assert(sizeof(Stamp) == 32);

constexpr uint64_t kMagic = 0x63737761'70706167;
constexpr size_t kEndStamp = kPageSize - sizeof(Stamp);

// Words that differ between two pages made from the same corpus page. Few, so that a page
// compresses about as well as the one it was made from.
constexpr unsigned kVariedWords = 4;

std::string describe_stamp(const std::byte* at, uint64_t seed) {
  Stamp stamp;
  std::memcpy(&stamp, at, sizeof stamp);
  if (stamp.magic != kMagic) return "no stamp";
  char text[160];
  std::snprintf(text, sizeof text, "offset 0x%llx generation %u region %u%s",
                static_cast<unsigned long long>(stamp.page * kPageSize), stamp.generation,
                stamp.region, stamp.seed == seed ? "" : " of another seed");
  return text;
}

[[noreturn]] void refuse(const std::string& message) {
  std::fprintf(stderr, "usemem: --corpus: %s\n", message.c_str());
  std::exit(2);
}

}  // namespace

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

Corpus::Corpus(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".pages") names.push_back(entry.path());
  }
  if (error) refuse(directory + ": " + error.message());
  // A seed means the same pages everywhere, whatever order the directory has.
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const int fd = open(name.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (fd < 0 || fstat(fd, &status) != 0) refuse(name + ": " + std::strerror(errno));
    const auto size = static_cast<size_t>(status.st_size);
    if (size == 0 || size % kPageSize != 0) refuse(name + " is not a whole number of pages");
    void* map = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) refuse(name + ": " + std::strerror(errno));
    close(fd);
    for (size_t at = 0; at < size; at += kPageSize) {
      pages_.push_back(static_cast<const std::byte*>(map) + at);
    }
  }
  if (pages_.empty()) refuse(directory + " has no *.pages file");
}

void PageContent::make(const PageIdentity& identity, std::byte* out) const {
  uint64_t state = mix(seed_ ^ mix(identity.page));
  state = mix(state ^ ((uint64_t{identity.region} << 32) | identity.generation));
  std::memcpy(out, corpus_.page(state % corpus_.pages()), kPageSize);
  for (unsigned i = 0; i < kVariedWords; ++i) {
    state = mix(state);
    std::memcpy(out + (state % (kPageSize / 8)) * 8, &state, sizeof state);
  }
  const Stamp stamp{kMagic, identity.page, identity.region, identity.generation, seed_};
  std::memcpy(out, &stamp, sizeof stamp);
  std::memcpy(out + kEndStamp, &stamp, sizeof stamp);
}

bool PageContent::matches(const PageIdentity& identity, const std::byte* found) const {
  alignas(64) std::byte expected[kPageSize];
  make(identity, expected);
  return std::memcmp(expected, found, kPageSize) == 0;
}

std::string PageContent::describe_mismatch(const PageIdentity& identity,
                                           const std::byte* found) const {
  std::byte expected[kPageSize];
  make(identity, expected);
  const auto [want, got] = std::mismatch(expected, expected + kPageSize, found);
  std::string text = "MISMATCH at offset ";
  char line[256];
  std::snprintf(line, sizeof line, "0x%llx: want generation %u of region %u; ",
                static_cast<unsigned long long>(identity.page * kPageSize), identity.generation,
                identity.region);
  text += line;
  if (want == expected + kPageSize) return text + "a second look finds it right";
  std::snprintf(line, sizeof line, "first wrong byte %td: want 0x%02x, found 0x%02x; ",
                want - expected, std::to_integer<unsigned>(*want), std::to_integer<unsigned>(*got));
  text += line;
  if (std::all_of(found, found + kPageSize, [](std::byte b) { return b == std::byte{0}; })) {
    return text + "found all zero";
  }
  return text + "found at its start: " + describe_stamp(found, seed_) +
         ", at its end: " + describe_stamp(found + kEndStamp, seed_);
}

}  // namespace cswap::guest
