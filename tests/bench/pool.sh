#!/usr/bin/env bash
# The pool in one process, one page a request: speed against the bare codec, and memory against the
# compressed bytes.
# usage: tests/bench/pool.sh [ROUNDS [SECONDS_EACH]] [--json FILE]    (default 9 rounds of 0.2 s)
# CSWAP_CORPUS names another directory of *.pages.zst than tests/corpus.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
parse_arguments 9 0.2 "$@"

for ((round = 1; round <= ROUNDS; round++)); do
  progress "$round"
  google pool_bench '^(bare|pool)_' | jq -r "$JQ_NS_PER_ITEM" | sample_lines
done
progress_done
# Speed, so time is turned over.
ratio "store over older content, lz4" bare_lz4_store pool_store/lz4
ratio "first store, lz4" bare_lz4_store pool_store_first/lz4
ratio "load, lz4" bare_lz4_load pool_load/lz4
ratio "store over older content, zstd" bare_zstd_store pool_store/zstd
report "one page a request; ratios are speed against the bare codec" "ns a page"
memory_bench=$(program memory_bench)
"$memory_bench" >"$WORK/memory"
printf '\nmemory\n'
cat "$WORK/memory"
jq -Rn '{title: "memory", rows: [inputs | split(" ") | map(select(. != ""))
  | select(.[0] != "codec") | {codec: .[0], numbers: (.[1:] | map(tonumber))}]}' "$WORK/memory" |
  jq '{title, rows: [.rows[] | {codec} + ([["pages", "orig_mib", "compr_mib", "used_mib", "rss_mib",
    "ratio", "used_per_compr", "used_per_compr_less_8b_a_page", "rss_per_used"], .numbers]
    | transpose | map({key: .[0], value: .[1]}) | from_entries)]}' | add_section
finish
