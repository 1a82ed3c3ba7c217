#!/usr/bin/env bash
# Latency of 4 KiB reads over NBD while the same connection trims 2 MiB each millisecond (E5):
# free=sync against free=async, with one thread a connection, so that a read waits for the trim
# before it, and with 16. Durations are from when a request was due; reads are due each 100 us on
# average. Ratios are sync / async: above 1, async is faster.
# usage: tests/bench/nbd_free.sh [ROUNDS [SECONDS_EACH]] [--json FILE] [--threads "1 16"]
#        [--read-us N]    (default 9 rounds of 1 s)
# Each second takes 1 GiB of memory and some seconds to fill it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$BENCH/free_lib.sh"
OPTION[threads]="1 16"
OPTION[read-us]=100
parse_arguments 9 1 "$@"
need nbdkit nbdkit
nbd_free=$(program nbd_free)
read -ra threads <<<"${OPTION[threads]}"
# What is read, and 2 MiB for each trim.
size=$(awk -v s="$SECONDS_EACH" 'BEGIN {print 128 + 2 * int(s * 1000)}')M

for ((round = 1; round <= ROUNDS; round++)); do
  progress "$round"
  for n in "${threads[@]}"; do
    for way in $(ways_of "$round"); do
      start_server "$PLUGIN $size free=$way" "$n"
      "$nbd_free" "$URI" "$SECONDS_EACH" "${OPTION[read-us]}" |
        jq -c --arg variant "-t $n" --arg way "$way" '. + {$variant, $way}' >>"$WORK/runs"
      stop_server
    done
  done
done
progress_done

for n in "${threads[@]}"; do
  goal=''
  [ "$n" != 1 ] || goal="each>1"
  percentiles "-t $n" reads "nbdkit -t $n: latency of 4 KiB reads" "$goal"
  shares "-t $n" reads "nbdkit -t $n: share of reads" 100
  percentiles "-t $n" trims "nbdkit -t $n: latency of 2 MiB trims"
done

jq -s 'group_by(.variant, .way) | map({variant: .[0].variant, way: .[0].way,
  reads: (map(.reads.count) | add), late_reads: (map(.late_reads) | add),
  trims: (map(.trims.count) | add), late_trims: (map(.late_trims) | add)})' "$WORK/runs" \
  >"$WORK/counts"
add_section <"$WORK/counts"
echo
jq -r '.[] | "\(.variant), free=\(.way): \(.reads) reads (\(.late_reads) sent over 1 ms late), " +
  "\(.trims) trims (\(.late_trims) sent over 1 ms late)"' "$WORK/counts"
finish
