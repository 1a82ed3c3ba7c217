#!/usr/bin/env bash
# Latency of 4 KiB loads while another thread discards 2 MiB each millisecond (E5): free=sync
# against free=async, and the latency of the discards themselves; the second variant also
# overwrites 64 KiB after each discard. Ratios are sync / async: above 1, async is faster.
# usage: tests/bench/free.sh [ROUNDS [SECONDS_EACH]] [--json FILE] [--loaders N]
#        (default 9 rounds of 1 s, and a loader for each core)
# Each second takes 1 GiB of memory and some seconds to fill it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
OPTION[loaders]=$(nproc)
parse_arguments 9 1 "$@"

free_bench=$(program free_bench)
for ((round = 1; round <= ROUNDS; round++)); do
  progress "$round"
  for variant in discard discard+overwrite; do
    ways=(sync async)
    [ $((round % 2)) = 1 ] || ways=(async sync)
    for way in "${ways[@]}"; do
      "$free_bench" "$variant" "free=$way" "$SECONDS_EACH" "${OPTION[loaders]}" |
        jq -c --arg way "$way" '. + {$way}' >>"$WORK/runs"
    done
  done
done
progress_done

# usage: percentiles VARIANT OPERATION WHAT
percentiles() {
  local name
  jq -r --arg variant "$1" --arg operation "$2" '
    select(.variant == $variant) | .way as $way | .[$operation]
    | (["p50", .p50_ns], ["p99", .p99_ns], ["p99.9", .p999_ns],
       ["p99.99", .p9999_ns], ["max", .max_ns])
    | ["\(.[0]), free=\($way)", .[1] / 1000] | @tsv' "$WORK/runs" | sample_lines
  for name in p50 p99 p99.9 p99.99 max; do
    ratio "$name: sync / async" "$name, free=sync" "$name, free=async"
  done
  report "$1: latency of $3" "us"
}
# The columns of E5, and what waited for more than a load takes.
shares() {
  jq -r --arg variant "$1" '
    select(.variant == $variant) | .way as $way | .loads
    | (["0-100 us", .below_100us], ["100-500 us", .below_500us - .below_100us],
       ["above 500 us", 1 - .below_500us], ["above 20 us", 1 - .below_20us])
    | ["\(.[0]), free=\($way)", .[1] * 100] | @tsv' "$WORK/runs" | sample_lines
  ratio "above 20 us: sync / async" "above 20 us, free=sync" "above 20 us, free=async"
  report "$1: share of loads" "%"
}
for variant in discard discard+overwrite; do
  percentiles "$variant" loads "4 KiB loads"
  shares "$variant"
  percentiles "$variant" discards "2 MiB discards"
done
percentiles discard+overwrite stores "64 KiB stores over older content"

jq -s 'group_by(.way) | map({way: .[0].way, loads: (map(.loads.count) | add),
  discards: (map(.discards.count) | add), late_discards: (map(.late_discards) | add),
  freed_in_request: (map(.freed_in_request) | add),
  freed_in_background: (map(.freed_in_background) | add)})' "$WORK/runs" >"$WORK/counts"
add_section <"$WORK/counts"
echo
jq -r '.[] | "free=\(.way): \(.loads) loads, \(.discards) discards (\(.late_discards) over 1 ms " +
  "late), objects freed \(.freed_in_request) in requests, \(.freed_in_background) in background"' \
  "$WORK/counts"
finish
