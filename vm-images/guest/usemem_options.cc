#include "usemem_options.h"

#include <getopt.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace cswap::guest {
namespace {

constexpr uint64_t kMaxTasks = 1024;

// Long options without a letter of their own.
enum LongOnly {
  kVerify = 256,
  kCorpus,
  kSeed,
  kPasses,
  kHook,
  kPunchHoles,
  kInitTime,
  kTouchAlloc,
  kSignalReadCount,
};

constexpr char kShortOptions[] = ":n:t:b:au:j:FPOUMoRZr:e:T:s:Wyxqhf:B:wSAdp:gLDEHNm:";

constexpr option kLongOptions[] = {
    {"nproc", required_argument, nullptr, 'n'},
    {"thread", required_argument, nullptr, 't'},
    {"bind", required_argument, nullptr, 'b'},
    {"malloc", no_argument, nullptr, 'a'},
    {"unit", required_argument, nullptr, 'u'},
    {"step", required_argument, nullptr, 'j'},
    {"prefault", no_argument, nullptr, 'F'},
    {"prealloc", no_argument, nullptr, 'P'},
    {"anonymous", no_argument, nullptr, 'O'},
    {"hugetlb", no_argument, nullptr, 'U'},
    {"mlock", no_argument, nullptr, 'M'},
    {"readonly", no_argument, nullptr, 'o'},
    {"random", no_argument, nullptr, 'R'},
    {"read-again", no_argument, nullptr, 'Z'},
    {"repeat", required_argument, nullptr, 'r'},
    {"delay", required_argument, nullptr, 'e'},
    {"runtime", required_argument, nullptr, 'T'},
    {"sleep", required_argument, nullptr, 's'},
    {"write-signal-read", no_argument, nullptr, 'W'},
    {"sync-rw", no_argument, nullptr, 'y'},
    {"sync-free", no_argument, nullptr, 'x'},
    {"quiet", no_argument, nullptr, 'q'},
    {"help", no_argument, nullptr, 'h'},
    {"signal-read-count", required_argument, nullptr, kSignalReadCount},
    {"punch-holes", no_argument, nullptr, kPunchHoles},
    {"init-time", no_argument, nullptr, kInitTime},
    {"touch-alloc", no_argument, nullptr, kTouchAlloc},
    {"verify", no_argument, nullptr, kVerify},
    {"corpus", required_argument, nullptr, kCorpus},
    {"seed", required_argument, nullptr, kSeed},
    {"passes", required_argument, nullptr, kPasses},
    {"hook", required_argument, nullptr, kHook},
    {nullptr, 0, nullptr, 0},
};

// Letters of the original that concern files, shared segments or a terminal.
constexpr std::string_view kNotHere = "fBwSAdpgLDEHNm";

constexpr char kHelp[] = R"(usage: usemem [options] SIZE    (SIZE of each task, with k, m, g or t)

Who does it
  -n, --nproc N      N processes (1)          -t, --thread N   N threads in each
  -b, --bind N       bind worker i to CPU i*N
What memory
  -a, --malloc       from malloc, not mmap    -u, --unit SIZE  in pieces of SIZE
  -F, --prefault     MAP_POPULATE             -P, --prealloc   once, before the fork
  -U, --hugetlb      from hugetlbfs            -O, --anonymous  accepted: always so here
      --touch-alloc  write it all when allocated
How it is used
  -o, --readonly     read only                -R, --random     in random order
  -j, --step SIZE    from word to word (8)    -r, --repeat N   N times over (1)
  -Z, --read-again   read it all once more    -e, --delay N    N ns a page, or Nu, Nm
  -T, --runtime SEC  stop after SEC seconds
Afterwards
  -M, --mlock        lock it                      --punch-holes  free every second page
  -s, --sleep SEC    keep it SEC seconds
  -W, --write-signal-read       wait for SIGUSR1, then read
      --signal-read-count N     so many words
Together
  -y, --sync-rw      start after all have allocated
  -x, --sync-free    free after all are done
Output
  -q, --quiet        no dots between rounds       --init-time    time before the start
Checking every byte
  --verify           fill with pages that know their place and generation, and check them
  --corpus DIR       of *.pages files with the content to vary (required)
  --seed N           (1)                      --passes N       N-1 times rewrite half (1)
At each phase (filled, checked), when all tasks are there
  --hook COMMAND     run COMMAND PHASE
)";

template <typename... Args>
[[noreturn]] void refuse(const char* format, Args... args) {
  std::fputs("usemem: ", stderr);
  std::fprintf(stderr, format, args...);
  std::fputs(" (usemem --help lists the options)\n", stderr);
  std::exit(2);
}

// A whole number, optionally with a suffix for which `shift_of` gives a power of two.
uint64_t parse_number(const char* what, const char* text, uint64_t max) {
  char* end = nullptr;
  errno = 0;
  const uint64_t value = std::strtoull(text, &end, 0);
  if (end == text || *end != '\0' || errno != 0 || *text == '-' || value > max) {
    refuse("%s: '%s' is not a whole number up to %llu", what, text,
           static_cast<unsigned long long>(max));
  }
  return value;
}

unsigned parse_small(const char* what, const char* text, uint64_t max = 1'000'000) {
  return static_cast<unsigned>(parse_number(what, text, max));
}

uint64_t parse_size(const char* what, const char* text) {
  constexpr std::string_view kSuffixes = "kmgt";
  char* end = nullptr;
  errno = 0;
  const uint64_t value = std::strtoull(text, &end, 0);
  unsigned shift = 0;
  if (end != text && *end != '\0') {
    const size_t at = kSuffixes.find(static_cast<char>(*end | 0x20));
    if (at != std::string_view::npos) {
      shift = static_cast<unsigned>(10 * (at + 1));
      ++end;
    }
  }
  if (end == text || *end != '\0' || errno != 0 || *text == '-' || value > (UINT64_MAX >> shift)) {
    refuse("%s: '%s' is not a size such as 4096, 64k, 400m or 1g", what, text);
  }
  return value << shift;
}

// As the original: nanoseconds, or with `u` and `m` micro- and milliseconds.
uint64_t parse_delay(const char* text) {
  std::string number = text;
  uint64_t factor = 1;
  if (number.ends_with('u')) factor = 1'000;
  if (number.ends_with('m')) factor = 1'000'000;
  if (factor != 1) number.pop_back();
  return factor * parse_number("--delay", number.c_str(), 1'000'000'000);
}

bool apply_number(UsememOptions& options, int letter, const char* value) {
  switch (letter) {
    case 'n':
      options.tasks = parse_small("--nproc", value, kMaxTasks);
      return true;
    case 't':
      options.threads = parse_small("--thread", value, kMaxTasks);
      return true;
    case 'b':
      options.bind_interval = parse_small("--bind", value);
      return true;
    case 'u':
      options.unit_bytes = parse_size("--unit", value);
      return true;
    case 'j':
      options.step_bytes = parse_size("--step", value);
      return true;
    case 'r':
      options.repeat = parse_small("--repeat", value);
      return true;
    case 'e':
      options.delay_ns = parse_delay(value);
      return true;
    case 'T':
      options.runtime_s = parse_small("--runtime", value);
      return true;
    case 's':
      options.sleep_s = parse_small("--sleep", value);
      return true;
    case kSignalReadCount:
      options.signal_read_count = parse_number("--signal-read-count", value, UINT64_MAX);
      return true;
    case kCorpus:
      options.corpus_dir = value;
      return true;
    case kSeed:
      options.seed = parse_number("--seed", value, UINT64_MAX);
      return true;
    case kPasses:
      options.passes = parse_small("--passes", value);
      return true;
    case kHook:
      options.hook = value;
      return true;
    default:
      return false;
  }
}

bool apply_flag(UsememOptions& options, int letter) {
  switch (letter) {
    case 'a':
      options.use_malloc = true;
      return true;
    case 'F':
      options.prefault = true;
      return true;
    case 'P':
      options.prealloc = true;
      return true;
    case 'O':
      return true;
    case 'U':
      options.hugetlb = true;
      return true;
    case 'M':
      options.lock_memory = true;
      return true;
    case 'o':
      options.readonly = true;
      return true;
    case 'R':
      options.random = true;
      return true;
    case 'Z':
      options.read_again = true;
      return true;
    case 'W':
      options.wait_for_signal = true;
      return true;
    case 'y':
      options.sync_start = true;
      return true;
    case 'x':
      options.sync_free = true;
      return true;
    case 'q':
      options.quiet = true;
      return true;
    case kPunchHoles:
      options.punch_holes = true;
      return true;
    case kInitTime:
      options.init_time = true;
      return true;
    case kTouchAlloc:
      options.touch_after_alloc = true;
      return true;
    case kVerify:
      options.verify = true;
      return true;
    default:
      return false;
  }
}

void check_combinations(const UsememOptions& options) {
  if (options.tasks == 0 || options.passes == 0 || options.repeat == 0) {
    refuse("--nproc, --passes and --repeat are at least 1");
  }
  if (options.step_bytes == 0 || options.step_bytes % 8 != 0) {
    refuse("--step: a multiple of 8 bytes is needed");
  }
  if (options.sync_start && options.unit_bytes != 0 && options.unit_bytes != options.bytes) {
    refuse("--sync-rw needs all memory in one piece, not in units");
  }
  if (options.signal_read_count != 0 && !options.wait_for_signal) {
    refuse("--signal-read-count belongs to --write-signal-read");
  }
  if (options.use_malloc && (options.prefault || options.hugetlb || options.punch_holes)) {
    refuse("--malloc does not go with --prefault, --hugetlb or --punch-holes");
  }
  if (!options.verify && (!options.corpus_dir.empty() || options.passes != 1)) {
    refuse("--corpus and --passes belong to --verify");
  }
  if (!options.verify) return;
  if (options.corpus_dir.empty()) refuse("--verify needs --corpus DIR");
  if (options.readonly || options.wait_for_signal || options.read_again || options.prealloc ||
      options.punch_holes || options.use_malloc || options.repeat != 1 || options.step_bytes != 8 ||
      options.runtime_s != 0 || options.delay_ns != 0) {
    refuse("--verify does not go with -a -o -W -Z -P -r -j -T -e or --punch-holes");
  }
  if (options.bytes == 0 || options.bytes % 4096 != 0 || options.unit_bytes % 4096 != 0) {
    refuse("--verify needs sizes that are multiples of 4096");
  }
}

}  // namespace

UsememOptions parse_usemem_options(int argc, char** argv) {
  UsememOptions options;
  opterr = 0;
  int letter;
  while ((letter = getopt_long(argc, argv, kShortOptions, kLongOptions, nullptr)) != -1) {
    if (letter == 'h') {
      std::fputs(kHelp, stdout);
      std::exit(0);
    }
    if (letter == ':') refuse("%s needs a value", argv[optind - 1]);
    if (letter == '?') refuse("unknown option '%s'", argv[optind - 1]);
    if (letter < 256 && kNotHere.find(static_cast<char>(letter)) != std::string_view::npos) {
      refuse("-%c is not supported: it does not concern anonymous memory", letter);
    }
    if (!apply_flag(options, letter)) apply_number(options, letter, optarg);
  }
  if (optind != argc - 1) refuse("one SIZE is needed, %d were given", argc - optind);
  options.bytes = parse_size("SIZE", argv[optind]);
  check_combinations(options);
  return options;
}

}  // namespace cswap::guest
