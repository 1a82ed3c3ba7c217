# shellcheck shell=bash disable=SC2034  # what scripts use
# Functions shared by the scripts of this folder; sourced, never run.
#
# A script takes samples round by round, names ratios between them, and reports both: the median
# and the spread (lowest to highest). A ratio is taken within each round, of values measured next to
# each other, so that it holds although the machine's speed drifts.

BENCH=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$BENCH/../.." && pwd)
BUILD=${CSWAP_BUILD:-$ROOT/build/release}
PLUGIN=$BUILD/plugin/nbdkit-cswap-plugin.so
OLD_SWITCHES="alloc=global batch=off free=sync"
WORK=$(mktemp -d "${TMPDIR:-/tmp}/cswap-bench.XXXXXX")
CLEANUPS=()

die() { echo "$0: $*" >&2; exit 1; }

# Runs a command on every way out of the script, the last one first.
at_exit() { CLEANUPS+=("$*"); }
run_cleanups() {
  local i
  for ((i = ${#CLEANUPS[@]} - 1; i >= 0; i--)); do eval "${CLEANUPS[i]}" || true; done
  rm -rf "$WORK"
}
trap run_cleanups EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# What a script takes besides rounds and seconds, with its default; each is given as --NAME VALUE.
declare -A OPTION=([json]="")

# usage: parse_arguments ROUNDS SECONDS "$@". Sets ROUNDS and SECONDS_EACH, from [ROUNDS [SECONDS]],
# and OPTION.
parse_arguments() {
  ROUNDS=$1 SECONDS_EACH=$2
  shift 2
  local numbers=()
  while [ $# -gt 0 ]; do
    case $1 in
      --help) sed -n '2,/^[^#]/s/^# \?//p' "$0"; exit ;;
      --*)
        [ -n "${OPTION[${1#--}]+known}" ] || die "unknown argument '$1'; see --help"
        [ $# -gt 1 ] || die "$1 needs a value"
        OPTION[${1#--}]=$2
        shift
        ;;
      [0-9]*) numbers+=("$1") ;;
      *) die "unknown argument '$1'; see --help" ;;
    esac
    shift
  done
  ROUNDS=${numbers[0]:-$ROUNDS} SECONDS_EACH=${numbers[1]:-$SECONDS_EACH}
  need jq jq
}

# usage: need PROGRAM PACKAGE
need() {
  command -v "$1" >/dev/null ||
    die "package $2 is missing (tests/support/install.sh bench installs it)"
}

# The path of a program of this folder.
program() {
  [ -x "$BUILD/tests/bench/$1" ] || die "build preset release first: no $BUILD/tests/bench/$1"
  echo "$BUILD/tests/bench/$1"
}

# usage: progress ROUND; shown while a script works, on a terminal only.
progress() { [ ! -t 2 ] || printf '\rround %d of %d ' "$1" "$ROUNDS" >&2; }
progress_done() { [ ! -t 2 ] || printf '\r%30s\r' '' >&2; }

# Runs Google Benchmark programs and prints their JSON.
# usage: google PROGRAM FILTER [ARGUMENT...]
google() {
  local path
  path=$(program "$1")
  "$path" --benchmark_filter="$2" --benchmark_min_time="$SECONDS_EACH" --benchmark_format=json \
    "${@:3}" 2>"$WORK/google.log" || { cat "$WORK/google.log" >&2; die "$1 failed"; }
}

# Lines of name and nanoseconds an item, as sample_lines takes them, from google's JSON.
JQ_NS_PER_ITEM='.benchmarks[] | [.name, 1e9 / .items_per_second] | @tsv'

# usage: sample NAME VALUE
sample() { printf '%s\t%s\n' "$1" "$2" >>"$WORK/samples"; }
# The same from lines of NAME, tab, VALUE.
sample_lines() { cat >>"$WORK/samples"; }
# usage: ratio NAME OVER UNDER [GOAL]; GOAL is such as ">=0.75" or "<=1.03", judged by the median, or
# such as "each>1", of every round.
ratio() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4:-}" >>"$WORK/ratios"; }

# usage: report TITLE UNIT. Prints the samples and ratios since the last report.
report() {
  touch "$WORK/samples" "$WORK/ratios"
  jq -n --arg title "$1" --arg unit "$2" --rawfile samples "$WORK/samples" \
    --rawfile ratios "$WORK/ratios" '
    def lines: split("\n") | map(select(. != "") | split("\t"));
    def median: sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2;
    def summary: {median: median, lowest: min, highest: max, rounds: .};
    def verdict($goal): if $goal == "" then null
      elif $goal[:5] == "each>" then .lowest > ($goal[5:] | tonumber)
      elif $goal[:2] == ">=" then .median >= ($goal[2:] | tonumber)
      else .median <= ($goal[2:] | tonumber) end;
    ($samples | lines | reduce .[] as [$name, $value] ({}; .[$name] += [$value | tonumber]))
      as $values
    | {title: $title, unit: $unit,
       values: ($values | map_values(summary)),
       ratios: [$ratios | lines[] | . as [$name, $over, $under, $goal]
         | ($values[$over] // error("no samples of \($over)")) as $over
         | ($values[$under] // error("no samples of \($under)")) as $under
         | if ($over | length) != ($under | length) then error("\($name): unlike rounds") else . end
         | {name: $name, goal: $goal}
           + ([range($over | length) | $over[.] / ([$under[.], 1e-9] | max)] | summary)
         | .met = verdict($goal)]}' >"$WORK/section.json"
  rm "$WORK/samples" "$WORK/ratios"
  add_section <"$WORK/section.json"
  jq -r '
    "T\t\(.title) [\(.unit)]: median (lowest to highest)",
    (.values | to_entries[] | "V\t\(.key)\t\(.value.median)\t\(.value.lowest)\t\(.value.highest)"),
    (.ratios[] | "R\t\(.name)\t\(.median)\t\(.lowest)\t\(.highest)\t"
      + (if .met == null then "" else "goal \(.goal): " + (if .met then "met" else "missed" end)
         end))' "$WORK/section.json" |
    awk -F'\t' '
      function shown(x) {
        if (x == int(x) || x >= 1000) return sprintf("%.0f", x)
        return sprintf(x >= 100 ? "%.1f" : "%.3f", x)
      }
      $1 == "T" { printf "\n%s\n", $2; next }
      { if ($1 == "R" && before != "R") print "  ratios"
        before = $1
        printf "  %-46s %10s  (%s to %s)%s\n", $2, shown($3), shown($4), shown($5),
               $6 == "" ? "" : "   " $6 }'
}

# Takes a JSON value for the file of --json; scripts with tables of their own use it too.
add_section() { jq -c . >>"$WORK/sections"; }

# Writes the file of --json, if there is to be one. The last thing a script does.
finish() {
  [ -n "${OPTION[json]}" ] || return 0
  jq -s --arg bench "$(basename "$0")" --argjson cores "$(nproc)" --arg kernel "$(uname -r)" \
    --arg commit "$(git -C "$ROOT" describe --always --dirty 2>/dev/null || true)" \
    --arg load "$LOAD_AT_START" \
    '{bench: $bench, commit: $commit, cores: $cores, kernel: $kernel,
      load_at_start: ($load | tonumber), sections: .}' "$WORK/sections" >"${OPTION[json]}"
}

read -r LOAD_AT_START _ </proc/loadavg
if awk -v l="$LOAD_AT_START" -v n="$(nproc)" 'BEGIN {exit !(l > n / 2)}'; then
  echo "note: other programs keep this machine busy (load $LOAD_AT_START): mistrust the figures" >&2
fi

# A zram device of this script's own, in ZRAM, as lz4 of the given size, or ZRAM_MISSING with the
# reason. It is given back on every way out.
# usage: take_zram SIZE
take_zram() {
  ZRAM='' ZRAM_MISSING=''
  local id=''
  [ -e /sys/class/zram-control ] || modprobe zram 2>/dev/null || true
  if [ "$(id -u)" != 0 ]; then
    ZRAM_MISSING="only root may set up a zram device"
  elif ! id=$(cat /sys/class/zram-control/hot_add 2>/dev/null); then
    ZRAM_MISSING="this kernel has no zram"
  else
    at_exit "echo $id >/sys/class/zram-control/hot_remove"
    ZRAM=/dev/zram$id
    [ -b "$ZRAM" ] || ZRAM_MISSING="no device node $ZRAM"
  fi
  [ -z "$ZRAM_MISSING" ] || { ZRAM=''; return 0; }
  at_exit "reset_zram"
  if ! size_zram "$1"; then
    ZRAM='' ZRAM_MISSING="this kernel's zram has no lz4"
  fi
}
reset_zram() {
  local i
  [ -n "$ZRAM" ] || return 0
  # Something that probes new devices may have it open for a moment.
  for ((i = 0; i < 50; i++)); do
    ! echo 1 2>/dev/null >"/sys/block/${ZRAM#/dev/}/reset" || return 0
    sleep 0.1
  done
  echo "$ZRAM is in use and cannot be given back" >&2
  return 1
}
# Empties it and gives it a size.
size_zram() {
  reset_zram
  echo lz4 >"/sys/block/${ZRAM#/dev/}/comp_algorithm" 2>/dev/null || return 1
  echo "$1" >"/sys/block/${ZRAM#/dev/}/disksize"
}

# Words of a fio job: pages that are 60 % compressible in chunks of 4 KiB.
# usage: fio_words RW BLOCK_SIZE CONNECTIONS ENGINE_WORD...
fio_words() {
  echo "--name=run --size=512M --output-format=json --rw=$1 --bs=$2 --numjobs=$3" \
    "--group_reporting --refill_buffers --buffer_compress_percentage=60" \
    "--buffer_compress_chunk=4k ${*:4}"
}
# The words that end a job in time; fio takes no fractions of a second.
fio_time() { awk -v s="$SECONDS_EACH" 'BEGIN {printf "--time_based --runtime=%dms\n", s * 1000}'; }

# Runs a job, on what was filled before when it reads; prints fio's JSON of it.
# usage: run_fio RW BLOCK_SIZE CONNECTIONS ENGINE_WORDS
run_fio() {
  # shellcheck disable=SC2046  # words
  if [[ $1 == *read ]]; then fio $(fio_words write 256k 1 "$4") >/dev/null; fi
  # shellcheck disable=SC2046
  fio $(fio_words "$1" "$2" "$3" "$4" "$(fio_time)") | sed -n '/^{/,$p' | jq '.jobs[0]'
}
# The same as one job on $ZRAM.
# usage: zram_fio RW BLOCK_SIZE
zram_fio() { run_fio "$1" "$2" 1 "--ioengine=psync --direct=1 --filename=$ZRAM"; }

# Whether all of the words but the first are among those of the first.
# usage: among "WORD..." WORD...
among() {
  local word
  for word in "${@:2}"; do [[ " $1 " == *" $word "* ]] || return 1; done
}

# A server on a socket in $WORK, for as long as a measurement: sets URI and SERVER_PID.
# usage: start_server "PLUGIN PARAMETER..." [THREADS]; that many for each connection.
start_server() {
  rm -f "$WORK/nbd.sock" "$WORK/nbd.pid"
  # shellcheck disable=SC2086  # the arguments of a server are words
  nbdkit -f -t "${2:-16}" -U "$WORK/nbd.sock" -P "$WORK/nbd.pid" $1 2>"$WORK/nbd.log" &
  SERVER_PID=$!
  URI="nbd+unix:///?socket=$WORK/nbd.sock"
  local i
  for ((i = 0; i < 500; i++)); do
    [ ! -s "$WORK/nbd.pid" ] || return 0
    kill -0 "$SERVER_PID" 2>/dev/null || break
    sleep 0.02
  done
  cat "$WORK/nbd.log" >&2
  die "nbdkit $1 did not start"
}
stop_server() {
  [ -n "${SERVER_PID:-}" ] || return 0
  kill "$SERVER_PID" 2>/dev/null || true
  wait "$SERVER_PID" 2>/dev/null || true
  SERVER_PID=''
}
at_exit stop_server
