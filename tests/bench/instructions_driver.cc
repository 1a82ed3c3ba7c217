// A number of like requests, each time the same, for a tool that counts instructions: what lies
// between is in cswap_measured(). instructions.sh runs it.
// usage: instructions_driver store_4k|store_64k|load_4k|discard_2m SWITCHES PAGES

#include "tests/bench/bench.h"

namespace {

using namespace cswap;
using namespace cswap::bench;

enum class Request { kStore, kLoad, kDiscard };

struct Run {
  Request request = Request::kStore;
  size_t request_pages = 1;
  Device* device = nullptr;
};

Run parse(const std::string& name) {
  if (name == "store_4k") return {Request::kStore, 1};
  if (name == "store_64k") return {Request::kStore, kMthpPages};
  if (name == "load_4k") return {Request::kLoad, 1};
  if (name == "discard_2m") return {Request::kDiscard, kThpPages};
  fail("no request '" + name + "'");
}

}  // namespace

// Visible, and with a name that is easy to give to a tool.
extern "C" [[gnu::noinline, gnu::visibility("default")]] void cswap_measured(const Run* run) {
  Page page;
  for (uint64_t at = 0; at < run->device->pages(); at += run->request_pages) {
    switch (run->request) {
      case Request::kStore:
        // Another page than the one before it, so that objects change their size class.
        run->device->store(at, corpus_run(at + 1, run->request_pages));
        break;
      case Request::kLoad:
        run->device->load(at, page);
        break;
      case Request::kDiscard:
        run->device->discard(at, run->request_pages);
        break;
    }
  }
}

int main(int argc, char** argv) {
  if (argc != 4) bench::fail("usage: instructions_driver REQUEST SWITCHES PAGES");
  Run run = parse(argv[1]);
  const uint64_t pages = std::strtoull(argv[3], nullptr, 10) / kThpPages * kThpPages;
  Device device("lz4", argv[2], std::max<uint64_t>(pages, kThpPages));
  run.device = &device;
  for (uint64_t at = 0; at < device.pages(); at += kMthpPages) {
    device.store(at, corpus_run(at, kMthpPages));
  }
  device.settle();
  cswap_measured(&run);
  device.settle();
  std::printf("%llu\n", static_cast<unsigned long long>(device.pages()));
  return 0;
}
