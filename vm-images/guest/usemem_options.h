// The arguments of usemem. They follow vm-scalability's tool of that name as far as they concern
// anonymous memory, so that a command line from a published measurement can be used as it is.
#pragma once

#include <cstdint>
#include <string>

namespace cswap::guest {

struct UsememOptions {
  uint64_t bytes = 0;  // of each task (and, with threads, of each thread)

  unsigned tasks = 1;
  unsigned threads = 0;  // 0: the task itself does the work
  unsigned bind_interval = 0;

  bool use_malloc = false;
  bool prefault = false;
  bool hugetlb = false;
  bool prealloc = false;  // one area, allocated before the tasks are forked
  bool touch_after_alloc = false;
  uint64_t unit_bytes = 0;  // 0: all in one piece

  bool readonly = false;
  bool random = false;
  bool read_again = false;
  uint64_t step_bytes = 8;
  unsigned repeat = 1;
  uint64_t delay_ns = 0;  // least time spent on each page
  unsigned runtime_s = 0;

  bool lock_memory = false;
  bool punch_holes = false;
  unsigned sleep_s = 0;
  bool wait_for_signal = false;  // write, wait for SIGUSR1, read
  uint64_t signal_read_count = 0;
  bool sync_start = false;
  bool sync_free = false;

  bool init_time = false;
  bool quiet = false;

  bool verify = false;
  std::string corpus_dir;
  uint64_t seed = 1;
  unsigned passes = 1;
  std::string hook;  // run with a phase's name when all tasks have reached it

  unsigned workers_per_task() const { return threads > 0 ? threads : 1; }
};

// Exits with 2 and a message on a bad argument, with 0 after --help.
UsememOptions parse_usemem_options(int argc, char** argv);

}  // namespace cswap::guest
