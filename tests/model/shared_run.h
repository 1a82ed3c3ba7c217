// Several connections write to the same pages: each page read must be wholly one writer's, and not
// an older one than that writer had already finished replacing.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/model/area_run.h"
#include "tests/model/request.h"
#include "tests/model/settings.h"
#include "tests/support/corpus.h"

namespace cswap::test {

// What all writers of the pages know of each other.
class SharedPages {
 public:
  SharedPages(Area area, uint64_t writers);

  [[nodiscard]] const Area& area() const { return area_; }
  [[nodiscard]] uint64_t pages() const { return (area_.end - area_.begin) / kPageBytes; }

  // Generation of the last write of this page by this writer that has been sent, or is finished.
  std::atomic<uint64_t>& sent(uint64_t writer, uint64_t page) { return at(writer, page).sent; }
  std::atomic<uint64_t>& finished(uint64_t w, uint64_t page) { return at(w, page).finished; }

  // Checks a page that was read. `floor` has, per writer, what was finished before the read was
  // sent. Returns "" or what is wrong.
  [[nodiscard]] std::string check(std::span<const std::byte> content, uint64_t page,
                                  std::span<const uint64_t> floor);
  [[nodiscard]] std::vector<uint64_t> floor(uint64_t page);

 private:
  struct Progress {
    std::atomic<uint64_t> sent{0};
    std::atomic<uint64_t> finished{0};
  };
  Progress& at(uint64_t writer, uint64_t page) { return progress_[writer * pages() + page]; }

  const Area area_;
  const uint64_t writers_;
  std::vector<Progress> progress_;
};

// One writer, which also reads, trims and zeroes.
class SharedRun {
 public:
  SharedRun(const Settings& settings, const std::string& socket_path, SharedPages& shared,
            uint64_t writer, uint64_t seed);
  void run();
  [[nodiscard]] uint64_t refused() const { return refused_; }

 private:
  void submit_one();
  void sign_pages(Request& request);
  void finish(Request& request, int error);
  [[nodiscard]] uint64_t first_page(const Request& request) const {
    return (request.offset - shared_.area().begin) / kPageBytes;
  }

  const Settings& settings_;
  SharedPages& shared_;
  const uint64_t writer_;
  Random random_;
  Pipeline pipeline_;
  uint64_t generation_ = 0;
  uint64_t reads_ = 0;
  // By Request::note, for reads in flight: what was finished, per page, when the read was sent.
  std::map<uint64_t, std::vector<std::vector<uint64_t>>> floors_;
  uint64_t refused_ = 0;
};

}  // namespace cswap::test
