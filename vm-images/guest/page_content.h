// Page content for the verifying mode: pages of real programs, varied by a seed, each stamped at
// both ends with its own place and a generation number. So a page that comes back is recognised not
// only when it is changed but also when it is another page, an older one, or half of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cswap::guest {

inline constexpr size_t kPageSize = 4096;

// A page and when it was last written: everything that its content depends on, besides the seed.
struct PageIdentity {
  uint32_t region;      // which worker's memory
  uint32_t generation;  // counts from 1
  uint64_t page;        // within the region
};

// The raw pages of all *.pages files of a directory. The files are mapped, not copied: in a guest
// they are in its root file system in memory anyway.
class Corpus {
 public:
  // Exits with 2 and a message when there is nothing usable in the directory.
  explicit Corpus(const std::string& directory);

  size_t pages() const { return pages_.size(); }
  const std::byte* page(size_t index) const { return pages_[index]; }

 private:
  std::vector<const std::byte*> pages_;
};

class PageContent {
 public:
  PageContent(const Corpus& corpus, uint64_t seed) : corpus_(corpus), seed_(seed) {}

  // Writes the content of a page to `out`, of kPageSize bytes.
  void make(const PageIdentity& identity, std::byte* out) const;

  // True when `found` is exactly that content.
  bool matches(const PageIdentity& identity, const std::byte* found) const;

  // What is wrong with a page that does not match: the first wrong byte, and whose stamps it has.
  std::string describe_mismatch(const PageIdentity& identity, const std::byte* found) const;

 private:
  const Corpus& corpus_;
  uint64_t seed_;
};

// A good mix of the bits of x, for choosing by number (splitmix64's finaliser).
uint64_t mix(uint64_t x);

}  // namespace cswap::guest
