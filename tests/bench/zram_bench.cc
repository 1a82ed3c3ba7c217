// The pool in this process and a zram device on the same pages, pass by pass in turn, one page a
// request and one request at a time. Prints lines of a name and nanoseconds a page.
// usage: zram_bench DEVICE SECONDS    (the device is at least as large as the corpus)

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/bench/bench.h"

namespace {

using namespace cswap;
using namespace cswap::bench;
using Clock = std::chrono::steady_clock;

// O_DIRECT wants them aligned.
struct alignas(kPageBytes) AlignedPage {
  Page bytes;
};

class Zram {
 public:
  explicit Zram(const char* path) : fd_(::open(path, O_RDWR | O_DIRECT | O_EXCL | O_CLOEXEC)) {
    if (fd_ < 0) fail(std::string(path) + ": " + std::strerror(errno));
  }
  Zram(const Zram&) = delete;
  Zram& operator=(const Zram&) = delete;
  ~Zram() { ::close(fd_); }
  void store(size_t i, const Page& page) const {
    check(::pwrite(fd_, page.data(), kPageBytes, static_cast<off_t>(i * kPageBytes)));
  }
  void load(size_t i, Page& page) const {
    check(::pread(fd_, page.data(), kPageBytes, static_cast<off_t>(i * kPageBytes)));
  }
  void discard(size_t pages) const {
    uint64_t range[2] = {0, pages * kPageBytes};
    if (::ioctl(fd_, BLKDISCARD, range) != 0) fail(std::string("zram: ") + std::strerror(errno));
  }

 private:
  static void check(ssize_t bytes) {
    if (bytes != kPageBytes) fail(std::string("zram: ") + std::strerror(errno));
  }
  const int fd_;
};

struct Pass {
  const char* name;
  std::chrono::nanoseconds taken{0};
  uint64_t pages = 0;

  template <typename PerPage>
  void run(size_t count, PerPage&& work) {
    const Clock::time_point start = Clock::now();
    for (size_t i = 0; i < count; ++i) work(i);
    taken += Clock::now() - start;
    pages += count;
  }
  void print() const {
    std::printf("%s\t%.1f\n", name,
                static_cast<double>(taken.count()) / static_cast<double>(pages));
  }
};

void measure(const char* path, double seconds) {
  std::vector<AlignedPage> pages(corpus_pages().size());
  for (size_t i = 0; i < pages.size(); ++i) pages[i].bytes = corpus_pages()[i];
  AlignedPage loaded;
  const Zram zram(path);
  Device device("lz4", "", pages.size());
  const auto store_pool = [&](size_t i) { device.store(i, pages[i].bytes); };
  const auto store_zram = [&](size_t i) { zram.store(i, pages[i].bytes); };
  const auto load_pool = [&](size_t i) { device.load(i, loaded.bytes); };
  const auto load_zram = [&](size_t i) { zram.load(i, loaded.bytes); };
  const auto check = [&](size_t i) { CSWAP_CHECK(loaded.bytes == pages[i].bytes); };

  for (size_t i = 0; i < pages.size(); ++i) {
    store_pool(i);
    load_pool(i);
    check(i);
    store_zram(i);
    load_zram(i);
    check(i);
  }
  Pass passes[] = {{"store, pool"}, {"store, zram"},       {"load, pool"},
                   {"load, zram"},  {"first store, pool"}, {"first store, zram"}};
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  do {
    passes[0].run(pages.size(), store_pool);
    passes[1].run(pages.size(), store_zram);
    passes[2].run(pages.size(), load_pool);
    passes[3].run(pages.size(), load_zram);
    device.discard(0, pages.size());
    device.settle();
    passes[4].run(pages.size(), store_pool);
    zram.discard(pages.size());
    passes[5].run(pages.size(), store_zram);
  } while (Clock::now() < end);
  for (const Pass& pass : passes) pass.print();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) bench::fail("usage: zram_bench DEVICE SECONDS");
  measure(argv[1], std::strtod(argv[2], nullptr));
  return 0;
}
