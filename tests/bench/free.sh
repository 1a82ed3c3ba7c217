#!/usr/bin/env bash
# Latency of 4 KiB loads beside discards of 2 MiB each millisecond (E5): free=sync against
# free=async, and of the discards. Ratios are sync / async: above 1, async is faster.
#   one-queue          one thread serves both in the order of arrival, loads each 20 us on average;
#                      from arrival to completion
#   discard            another thread discards, loaders ask without pause; time in the pool
#   discard+overwrite  as above, and 64 KiB are overwritten after each discard
# usage: tests/bench/free.sh [ROUNDS [SECONDS_EACH]] [--json FILE] [--loaders N] [--load-us N]
#        [--variants "one-queue discard discard+overwrite"]
#        (default 9 rounds of 1 s, a loader for each core, and all variants)
# Each second takes 1 GiB of memory and some seconds to fill it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$BENCH/free_lib.sh"
OPTION[loaders]=$(nproc)
OPTION[load-us]=20
OPTION[variants]="one-queue discard discard+overwrite"
parse_arguments 9 1 "$@"
read -ra variants <<<"${OPTION[variants]}"

free_bench=$(program free_bench)
for ((round = 1; round <= ROUNDS; round++)); do
  progress "$round"
  for variant in "${variants[@]}"; do
    number=${OPTION[loaders]}
    [ "$variant" != one-queue ] || number=${OPTION[load-us]}
    for way in $(ways_of "$round"); do
      "$free_bench" "$variant" "free=$way" "$SECONDS_EACH" "$number" |
        jq -c --arg way "$way" '. + {$way}' >>"$WORK/runs"
    done
  done
done
progress_done

for variant in "${variants[@]}"; do
  goal=''
  [ "$variant" != one-queue ] || goal="each>1"
  percentiles "$variant" loads "$variant: latency of 4 KiB loads" "$goal"
  shares "$variant" loads "$variant: share of loads" 20
  percentiles "$variant" discards "$variant: latency of 2 MiB discards"
  [ "$variant" != discard+overwrite ] ||
    percentiles "$variant" stores "$variant: latency of 64 KiB stores over older content"
done

jq -s 'group_by(.variant, .way) | map({variant: .[0].variant, way: .[0].way,
  loads: (map(.loads.count) | add), discards: (map(.discards.count) | add),
  late_discards: (map(.late_discards) | add), freed_in_request: (map(.freed_in_request) | add),
  freed_in_background: (map(.freed_in_background) | add)})' "$WORK/runs" >"$WORK/counts"
add_section <"$WORK/counts"
echo
jq -r '.[] | "\(.variant), free=\(.way): \(.loads) loads, \(.discards) discards " +
  "(\(.late_discards) begun over 1 ms late), objects freed \(.freed_in_request) in requests, " +
  "\(.freed_in_background) in background"' "$WORK/counts"
finish
