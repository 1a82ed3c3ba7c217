// usemem: allocates anonymous memory, uses it, and says how fast that went. Made to be run in a
// guest with less memory than it asks for, so that the guest swaps.
//
// The parent forks the tasks, leads them through the phases and reports one that fails; a task
// starts its threads, if any, and each of them is a worker with memory of its own.

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

#include "page_content.h"
#include "phases.h"
#include "usemem_options.h"
#include "worker.h"

namespace cswap::guest {
namespace {

struct Job {
  const UsememOptions& options;
  Phases& phases;
  const Piece* prealloc;
  const PageContent* content;
};

void bind_worker(const UsememOptions& options, uint32_t worker) {
  if (options.bind_interval == 0) return;
  const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(worker * options.bind_interval % static_cast<uint32_t>(cpus > 0 ? cpus : 1), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

bool run_worker(const Job& job, uint32_t worker) {
  bind_worker(job.options, worker);
  if (job.content != nullptr) {
    return run_verify_worker(job.options, job.phases, *job.content, worker);
  }
  run_access_worker(job.options, job.phases, job.prealloc, worker);
  return true;
}

// What the checks themselves run on must not go through the device that is checked. Locks are not
// inherited, so each process calls this.
void keep_own_memory() {
  if (mlockall(MCL_CURRENT) != 0) std::perror("usemem: mlockall, going on without");
}

bool run_task(const Job& job, uint32_t task) {
  const uint32_t workers = job.options.workers_per_task();
  if (job.options.verify) keep_own_memory();
  if (job.options.threads == 0) return run_worker(job, task);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < workers; ++i) {
    threads.emplace_back([&job, worker = task * workers + i] {
      // A worker that found a mismatch would leave the others waiting for it in the next phase.
      if (!run_worker(job, worker)) _exit(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return true;
}

bool lead_phases(const UsememOptions& options, Phases& phases) {
  const unsigned workers = options.tasks * options.workers_per_task();
  return phases.lead(Phase::kStart, workers, "") &&
         phases.lead(Phase::kFilled, workers, options.hook) &&
         (!options.verify || phases.lead(Phase::kChecked, workers, options.hook)) &&
         (!options.sync_free || phases.lead(Phase::kFree, workers, ""));
}

int run(const UsememOptions& options) {
  const uint64_t start = now_us();
  std::optional<Corpus> corpus;
  std::optional<PageContent> content;
  if (options.verify) {
    corpus.emplace(options.corpus_dir);
    content.emplace(*corpus, options.seed);
    std::printf("seed %llu, %zu corpus pages\n", static_cast<unsigned long long>(options.seed),
                corpus->pages());
    keep_own_memory();
  }
  std::optional<Piece> prealloc;
  if (options.prealloc) prealloc = allocate_piece(options, options.bytes);
  if (options.init_time) {
    std::printf("%llu usecs to initialise\n", static_cast<unsigned long long>(now_us() - start));
  }
  if (options.wait_for_signal) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
  }

  Phases phases;
  const Job job{options, phases, prealloc ? &*prealloc : nullptr, content ? &*content : nullptr};
  for (unsigned task = 0; task < options.tasks; ++task) {
    std::fflush(nullptr);  // or each child prints what is still buffered here
    const pid_t pid = fork();
    if (pid == 0) {
      phases.enter_child();
      const bool well = run_task(job, task);
      std::fflush(nullptr);
      _exit(well ? 0 : 1);
    }
    if (pid < 0) {
      std::perror("usemem: fork");
      phases.kill_children();
      return 1;
    }
    phases.add_child(pid);
  }
  if (!lead_phases(options, phases)) {
    phases.kill_children();
    return 1;
  }
  return phases.wait_children() ? 0 : 1;
}

}  // namespace
}  // namespace cswap::guest

int main(int argc, char** argv) {
  return cswap::guest::run(cswap::guest::parse_usemem_options(argc, argv));
}
