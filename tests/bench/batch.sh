#!/usr/bin/env bash
# A request stored as one batch against page by page (E2), and both against the bare codec on the
# same pages: one thread, requests of 4 KiB, 64 KiB and 2 MiB, over older content and as first
# stores. Ratios are of speed: the first named over the second.
# usage: tests/bench/batch.sh [ROUNDS [SECONDS_EACH]] [--json FILE] [--codecs "lz4 zstd"]
#        (default 9 rounds of 0.2 s)
set -euo pipefail
. "$(dirname "$0")/lib.sh"
OPTION[codecs]="lz4 zstd"
parse_arguments 9 0.2 "$@"

for codec in ${OPTION[codecs]}; do
  for ((round = 1; round <= ROUNDS; round++)); do
    progress "$round"
    google batch_bench "^$codec/" | jq -r "$JQ_NS_PER_ITEM" | sample_lines
  done
  progress_done
  for over in overwrite first; do
    for size in 4k 64k 2048k; do
      case=$codec/$size/$over goal='' batch_goal=''
      [ "$case" != lz4/64k/overwrite ] || goal=">=0.95"
      [ "$size" = 4k ] || batch_goal=">=1"
      ratio "$size $over: batch=on / bare $codec" "$case/bare" "$case/batch=on" "$goal"
      ratio "$size $over: batch=on / batch=off" "$case/batch=off" "$case/batch=on" "$batch_goal"
    done
  done
  report "$codec, one thread" "ns a page"
done
finish
