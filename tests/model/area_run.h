// Random requests of one connection to an area of its own, against a plain array.
//
// Areas begin and end at any byte, so neighbours share the pages at their borders: what one writes
// into such a page must not cost the other its bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/model/request.h"
#include "tests/model/settings.h"
#include "tests/support/corpus.h"

namespace cswap::test {

struct Area {
  uint64_t begin = 0;
  uint64_t end = 0;
};

class AreaRun {
 public:
  // `device` is what the device must hold, as one array; only the bytes of `area` are touched.
  AreaRun(const Settings& settings, const std::string& socket_path, Area area,
          std::span<std::byte> device, uint64_t seed);

  // Throws at the first wrong answer.
  void run();

  // Requests that the limit refused.
  [[nodiscard]] uint64_t refused() const { return refused_; }
  // Pages that must hold something, and pages that must hold nothing, of those wholly in the area.
  [[nodiscard]] uint64_t filled_pages() const;
  [[nodiscard]] uint64_t empty_pages() const;

 private:
  struct Range {
    uint64_t offset;
    uint64_t length;
  };

  void submit_one();
  Range choose_range();
  void finish(Request& request, int error);
  void check_read(const Request& request);
  void check_extents(const Request& request);
  void apply(const Request& request);
  void apply_start(const Request& request);
  void note_pages(uint64_t offset, uint64_t end, bool empty);
  [[noreturn]] void fail(const Request& request, const std::string& what) const;

  const Settings& settings_;
  const Area area_;
  const std::span<std::byte> device_;
  Random random_;
  Pipeline pipeline_;
  std::unique_ptr<NbdClient> second_look_;  // of its own, to find out what a refused write stored
  std::vector<uint8_t> empty_;              // by page of the device: known to have no content
  uint64_t submitted_ = 0;
  uint64_t refused_ = 0;
};

}  // namespace cswap::test
