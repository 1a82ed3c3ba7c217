// Latency of 4 KiB reads over NBD beside trims on the same connection (E5): the queue of a guest
// that faults pages in while a process of it exits. Reads of random pages are sent one each so many
// microseconds on average, and a trim of 2 MiB that were filled before each millisecond, whether
// the earlier ones were answered or not. A duration is from when a request was due until its answer
// is here. Prints a JSON object; nbd_free.sh compares both ways of freeing.
// usage: nbd_free URI SECONDS READ_PERIOD_US
// The device has room for the reads, 128 MiB, and for the trims, 2000 MiB a second.

#include <poll.h>
#include <sys/prctl.h>

#include "tests/bench/nbd_client.h"

namespace {

using namespace cswap;
using namespace cswap::bench;
using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

constexpr nanoseconds kTrimPeriod = std::chrono::milliseconds(1);
constexpr uint64_t kTrimBytes = kThpPages * kPageBytes;
// Where reads go, which is never trimmed.
constexpr uint64_t kReadBytes = 128 << 20;
constexpr uint64_t kReadsBefore = 1000;

// Requests that are due one each period, whatever becomes of the earlier ones.
class Stream {
 public:
  Stream(uint64_t count, nanoseconds period)
      : period_(period), requests_(count, Request{*this, {}}), samples_(count) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void begin(Clock::time_point start) {
    for (uint64_t i = 0; i < requests_.size(); ++i) requests_[i].due = start + i * period_;
  }
  // Moves each anywhere in its period, so that it meets other streams at any phase.
  void shift(Random& random) {
    for (Request& request : requests_) {
      request.due += nanoseconds(random.below(static_cast<uint64_t>(period_.count())));
    }
  }

  // How many were sent.
  [[nodiscard]] uint64_t sent() const { return sent_; }
  [[nodiscard]] bool all_answered() const { return samples_.count() == requests_.size(); }
  // When to send the next.
  [[nodiscard]] Clock::time_point next_due() const {
    return sent_ == requests_.size() ? Clock::time_point::max() : requests_[sent_].due;
  }
  // To be given to libnbd with the next, which is sent now.
  nbd_completion_callback send() {
    Request& request = requests_[sent_++];
    if (Clock::now() > request.due + kLate) ++late_;
    return {.callback = &Stream::finish, .user_data = &request, .free = nullptr};
  }

  [[nodiscard]] uint64_t late() const { return late_; }
  [[nodiscard]] Samples& samples() { return samples_; }

 private:
  static constexpr auto kLate = std::chrono::milliseconds(1);

  struct Request {
    Stream& stream;
    Clock::time_point due;
  };

  static int finish(void* data, int* error) {
    NbdClient::check_answer(*error);
    const auto* const request = static_cast<Request*>(data);
    const nanoseconds taken = Clock::now() - request->due;
    request->stream.samples_.add(static_cast<uint64_t>(taken.count()));
    return 1;  // retires it
  }

  const nanoseconds period_;
  std::vector<Request> requests_;
  Samples samples_;
  uint64_t sent_ = 0;
  uint64_t late_ = 0;
};

// Sends and receives what the connection is ready for, or sleeps until `until` at most.
void work_until(nbd_handle* nbd, Clock::time_point until) {
  const unsigned direction = nbd_aio_get_direction(nbd);
  const bool reads = (direction & LIBNBD_AIO_DIRECTION_READ) != 0;
  const bool writes = (direction & LIBNBD_AIO_DIRECTION_WRITE) != 0;
  pollfd fd{nbd_aio_get_fd(nbd), static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)),
            0};
  const auto left = std::max(nanoseconds(until - Clock::now()), nanoseconds(0));
  const timespec timeout{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
  if (ppoll(&fd, 1, &timeout, nullptr) < 0) fail("ppoll failed");
  int result = 0;
  if ((fd.revents & (POLLIN | POLLHUP | POLLERR)) != 0 && reads) {
    result = nbd_aio_notify_read(nbd);
  } else if ((fd.revents & (POLLOUT | POLLHUP | POLLERR)) != 0 && writes) {
    result = nbd_aio_notify_write(nbd);
  }
  if (result != 0) NbdClient::fail_nbd();
}

void measure(const std::string& uri, double seconds, nanoseconds read_period) {
  const auto trim_count = static_cast<uint64_t>(seconds * 1000);
  NbdClient client(uri);
  if (client.bytes() < kReadBytes + trim_count * kTrimBytes)
    fail("nbd_free: the device is too small");
  Random random(1);
  client.fill(kReadBytes + trim_count * kTrimBytes, random);
  nbd_handle* const nbd = client.handle();
  // Content is not looked at, so one buffer serves all.
  Page page;
  const auto random_offset = [&] { return random.below(kReadBytes / kPageBytes) * kPageBytes; };
  for (uint64_t i = 0; i < kReadsBefore; ++i) {
    if (nbd_pread(nbd, page.data(), page.size(), random_offset(), 0) != 0) NbdClient::fail_nbd();
  }

  Stream reads(trim_count * kTrimPeriod / read_period, read_period);
  Stream trims(trim_count, kTrimPeriod);
  const Clock::time_point start = Clock::now() + kTrimPeriod;
  reads.begin(start);
  reads.shift(random);
  trims.begin(start);
  while (!reads.all_answered() || !trims.all_answered()) {
    const Clock::time_point due = std::min(reads.next_due(), trims.next_due());
    if (due > Clock::now()) {
      work_until(nbd, due);
    } else if (due == reads.next_due()) {
      const auto done = reads.send();
      if (nbd_aio_pread(nbd, page.data(), page.size(), random_offset(), done, 0) < 0) {
        NbdClient::fail_nbd();
      }
    } else {
      const uint64_t offset = kReadBytes + trims.sent() * kTrimBytes;
      if (nbd_aio_trim(nbd, kTrimBytes, offset, trims.send(), 0) < 0) NbdClient::fail_nbd();
    }
  }
  const double taken = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf(
      "{\"seconds\": %.3f, \"late_reads\": %llu, \"late_trims\": %llu,\n \"reads\": %s,\n "
      "\"trims\": %s}\n",
      taken, static_cast<unsigned long long>(reads.late()),
      static_cast<unsigned long long>(trims.late()), reads.samples().json().c_str(),
      trims.samples().json().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t period_us = argc == 4 ? std::strtoull(argv[3], nullptr, 10) : 0;
  if (period_us == 0) bench::fail("usage: nbd_free URI SECONDS READ_PERIOD_US");
  // Else a sleep ends up to 50 us late.
  if (prctl(PR_SET_TIMERSLACK, 1) != 0) bench::fail("prctl failed");
  measure(argv[1], std::strtod(argv[2], nullptr), std::chrono::microseconds(period_us));
  return 0;
}
