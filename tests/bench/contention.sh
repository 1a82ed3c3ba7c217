#!/usr/bin/env bash
# Threads that store and load random pages of one device (E1, anon-w-rand for the pool):
# alloc=cluster against alloc=global, in requests of 4 KiB and of 64 KiB, and the locks that they
# waited for.
# usage: tests/bench/contention.sh [ROUNDS [SECONDS_EACH]] [--json FILE] [--threads "1 2 4 8 16"]
#        [--device-mib N]    (default 5 rounds of 0.5 s, 256 MiB, which is 128 slot clusters)
# The tables of locks are of the last number of threads.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
OPTION[threads]="1 2 4 8 16"
OPTION[device-mib]=256
parse_arguments 5 0.5 "$@"
read -ra threads <<<"${OPTION[threads]}"
most=${threads[-1]}

# Each in a process of its own; old and new next to each other.
# usage: measure SIZE FREE THREADS
measure() {
  local alloc
  for alloc in cluster global; do
    google contention_bench "^$1/alloc=$alloc/free=$2/real_time/threads:$3\$" \
      "${OPTION[device-mib]}" |
      jq -c --arg way "$alloc" --arg size "$1" --arg free "$2" --argjson threads "$3" \
        '.benchmarks[0] | {$way, $size, $free, $threads, pages_per_s: .items_per_second, seconds,
           locks: with_entries(select(.key | startswith("lock/")) | .key |= .[5:])}' \
        >>"$WORK/runs"
  done
}

for ((round = 1; round <= ROUNDS; round++)); do
  progress "$round"
  for size in 4k 64k; do
    for n in "${threads[@]}"; do measure "$size" async "$n"; done
  done
  measure 4k sync "$most"
done
progress_done

# usage: speed SIZE FREE THREADS...
speed() {
  local size=$1 free=$2 n
  shift 2
  for n in "$@"; do
    jq -r --arg size "$size" --arg free "$free" --argjson n "$n" \
      'select(.size == $size and .free == $free and .threads == $n)
       | ["\(.threads) threads, alloc=\(.way)", .pages_per_s] | @tsv' "$WORK/runs" | sample_lines
    ratio "$n threads: cluster / global" "$n threads, alloc=cluster" "$n threads, alloc=global"
  done
  report "$size requests, free=$free" "pages/s"
}
speed 4k async "${threads[@]}"
speed 64k async "${threads[@]}"
speed 4k sync "$most"

# The waits of all rounds at $most threads, by caller as `perf lock contention` has them.
# usage: lock_table SIZE FREE WAY
lock_table() {
  jq -s --arg size "$1" --arg free "$2" --arg way "$3" --argjson n "$most" '
    map(select(.size == $size and .free == $free and .way == $way and .threads == $n))
    | {title: "locks, \($size) requests, alloc=\($way) free=\($free), \($n) threads",
       seconds: (map(.seconds) | add),
       locks: (map(.locks | to_entries[]) | group_by(.key | split("/")[:-1]) | map(
         (.[0].key | split("/")) as $name
         | (reduce .[] as $e ({}; .[$e.key | split("/")[-1]] += [$e.value])) as $columns
         | {type: $name[0], caller: (if ($name | length) > 2 then $name[1] else "" end),
            acquired: ($columns.acquired // [0] | add),
            contended: ($columns.contended // [0] | add),
            total_ns: ($columns.total_ns // [0] | add), max_ns: ($columns.max_ns // [0] | max)}
         | .avg_ns = (if .contended > 0 then .total_ns / .contended else 0 end))
         | sort_by(.type, .caller))}' "$WORK/runs" >"$WORK/section.json"
  add_section <"$WORK/section.json"
  jq -r '"T\t\(.title), \(.seconds * 10 | round / 10) s",
         (.locks[] | [(if .caller == "" then .acquired else "" end), .contended, .total_ns, .max_ns,
                      .avg_ns, .type, (if .caller == "" then "(all)" else .caller end)] | @tsv)' \
    "$WORK/section.json" | awk -F'\t' '
    function time(ns) {
      if (ns >= 1e9) return sprintf("%.2f s", ns / 1e9)
      if (ns >= 1e6) return sprintf("%.2f ms", ns / 1e6)
      if (ns >= 1e3) return sprintf("%.2f us", ns / 1e3)
      return sprintf("%.0f ns", ns)
    }
    $1 == "T" { printf "\n%s\n%12s %10s %11s %11s %11s   %-14s %s\n", $2, "acquired", "contended",
                       "total wait", "max wait", "avg wait", "type", "caller"; next }
    { printf "%12s %10d %11s %11s %11s   %-14s %s\n", $1, $2, time($3), time($4), time($5), $6,
             $7 }'
}
for size in 4k 64k; do
  lock_table "$size" async global
  lock_table "$size" async cluster
done
lock_table 4k sync global
lock_table 4k sync cluster

# A second of a run, since runs differ in length; a lock that nobody waited for counts as 1 ns.
for case in "4k async" "64k async" "4k sync"; do
  read -r size free <<<"$case"
  for class in store slot_cache object_cluster slot_cluster "all locks"; do
    jq -r --arg size "$size" --arg free "$free" --arg class "$class" --argjson n "$most" '
      select(.size == $size and .free == $free and .threads == $n)
      | [.locks | to_entries[] | (.key | split("/")) as [$name, $column]
         | select($column == "total_ns" and ($class == "all locks" or $name == $class)) | .value]
        as $waits
      | ["\($class), alloc=\(.way)", ([$waits | add, 1] | max) / .seconds] | @tsv' "$WORK/runs" |
      sample_lines
  done
  ratio "store lock: global / cluster" "store, alloc=global" "store, alloc=cluster"
  ratio "all locks: global / cluster" "all locks, alloc=global" "all locks, alloc=cluster"
  report "waits at $most threads, $size requests, free=$free" "ns of waiting a second"
done

# A holder is preempted so rarely that one round may see it and another not.
jq -s --argjson n "$most" '
  def waited($way): map(select(.way == $way))
    | ([(map(.locks["store/total_ns"] // 0) | add), 1] | max) / (map(.seconds) | add);
  map(select(.threads == $n)) | group_by(.size, .free)
  | {title: "store lock, all rounds together", goal: ">=100", ratios: map(
      {size: .[0].size, free: .[0].free, ratio: (waited("global") / waited("cluster"))}
      | .met = (.ratio >= 100))}' "$WORK/runs" >"$WORK/section.json"
add_section <"$WORK/section.json"
printf '\nstore lock, all rounds together: waits with alloc=global over those with alloc=cluster\n'
jq -r '.goal as $goal | .ratios[] | "  \(.size) requests, free=\(.free): \(.ratio | floor)" +
  "   goal \($goal): " + (if .met then "met" else "missed" end)' "$WORK/section.json"
echo

cat <<TEXT
This machine has $(nproc) cores. With few cores, a lock is mostly waited for because its holder was
preempted: that takes a slice of the scheduler's each time and is rare, whatever the lock is for.
Shorter and rarer critical sections show here as fewer waits, not as scaling.
TEXT
finish
