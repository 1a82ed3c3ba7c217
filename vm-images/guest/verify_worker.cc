// The verifying mode. Pass 1 writes every page as generation 1 and checks all of them; each later
// pass writes a random half anew as its own generation, and checks all again.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "worker.h"

namespace cswap::guest {
namespace {

class VerifyWorker {
 public:
  VerifyWorker(const UsememOptions& options, const PageContent& content, uint32_t region)
      : options_(options), content_(content), region_(region) {}

  void allocate();
  void write_pass(unsigned pass);
  bool check_pass(unsigned pass) const;
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  uint64_t pages() const { return options_.bytes / kPageSize; }
  std::byte* address_of(uint64_t page) const;

  // The pages of a pass are a function of the seed, so that no table of generations is needed: the
  // table would itself be swapped out, and come back wrong with the rest.
  bool written_in(uint64_t page, unsigned pass) const {
    return pass == 1 || mix(options_.seed ^ mix(page ^ (uint64_t{pass} << 40) ^ region_)) % 2 == 0;
  }
  uint32_t generation_of(uint64_t page, unsigned pass) const {
    while (!written_in(page, pass)) --pass;
    return pass;
  }

  // Visits every page once: in order, or with --random in strides that jump about.
  uint64_t stride() const;

  const UsememOptions& options_;
  const PageContent& content_;
  const uint32_t region_;
  std::vector<Piece> pieces_;
};

void VerifyWorker::allocate() {
  const uint64_t unit = options_.unit_bytes != 0 ? options_.unit_bytes : options_.bytes;
  for (uint64_t done = 0; done < options_.bytes; done += unit) {
    pieces_.push_back(allocate_piece(options_, std::min(unit, options_.bytes - done)));
  }
}

std::byte* VerifyWorker::address_of(uint64_t page) const {
  const uint64_t unit_pages = pieces_.front().bytes / kPageSize;
  return pieces_[page / unit_pages].start + page % unit_pages * kPageSize;
}

uint64_t VerifyWorker::stride() const {
  if (!options_.random) return 1;
  uint64_t stride = mix(options_.seed ^ region_) % pages() | 1;
  while (std::gcd(stride, pages()) != 1) stride += 2;
  return stride;
}

void VerifyWorker::write_pass(unsigned pass) {
  const uint64_t start = now_us();
  const uint64_t stride_pages = stride();
  uint64_t written = 0;
  for (uint64_t i = 0, page = 0; i < pages(); ++i, page = (page + stride_pages) % pages()) {
    if (!written_in(page, pass)) continue;
    content_.make({region_, pass, page}, address_of(page));
    ++written;
  }
  print_rate(pass == 1 ? "fill " : "rewrite ", written * kPageSize, now_us() - start);
}

bool VerifyWorker::check_pass(unsigned pass) const {
  const uint64_t start = now_us();
  const uint64_t stride_pages = stride();
  for (uint64_t i = 0, page = 0; i < pages(); ++i, page = (page + stride_pages) % pages()) {
    const PageIdentity identity{region_, generation_of(page, pass), page};
    const std::byte* found = address_of(page);
    if (content_.matches(identity, found)) continue;
    std::printf("%s (pass %u, seed %llu)\n", content_.describe_mismatch(identity, found).c_str(),
                pass, static_cast<unsigned long long>(options_.seed));
    std::fflush(stdout);
    return false;
  }
  print_rate("check ", pages() * kPageSize, now_us() - start);
  return true;
}

}  // namespace

bool run_verify_worker(const UsememOptions& options, Phases& phases, const PageContent& content,
                       uint32_t worker) {
  VerifyWorker verifier(options, content, worker);
  if (!options.sync_start) phases.arrive_and_wait(Phase::kStart);
  verifier.allocate();
  if (options.sync_start) phases.arrive_and_wait(Phase::kStart);
  verifier.write_pass(1);
  phases.arrive_and_wait(Phase::kFilled);
  if (!verifier.check_pass(1)) return false;
  for (unsigned pass = 2; pass <= options.passes; ++pass) {
    verifier.write_pass(pass);
    if (!verifier.check_pass(pass)) return false;
  }
  if (options.lock_memory) {
    for (const Piece& piece : verifier.pieces()) mlock(piece.start, piece.bytes);
  }
  phases.arrive_and_wait(Phase::kChecked);
  for (unsigned left = options.sleep_s; left != 0;) left = sleep(left);
  if (options.sync_free) phases.arrive_and_wait(Phase::kFree);
  const uint64_t start = now_us();
  free_pieces(options, verifier.pieces());
  print_free(now_us() - start);
  return true;
}

}  // namespace cswap::guest
