#!/usr/bin/env bash
# The pool in one process: speed per page against the bare codec, interleaved repetitions in one
# run, and memory against the compressed bytes.
# usage: tests/bench/pool.sh [REPETITIONS]    (default 9)
# CSWAP_CORPUS names another directory of *.pages.zst than tests/corpus.
set -euo pipefail

cd "$(dirname "$0")/../.."
bench=build/release/tests/bench
[ -x "$bench/pool_bench" ] || { echo "$0: build preset release first" >&2; exit 1; }

"$bench/pool_bench" --benchmark_repetitions="${1:-9}" --benchmark_enable_random_interleaving=true \
  --benchmark_min_time=0.2 --benchmark_format=json 2>/dev/null |
  jq -r '
    def median: sort | .[length / 2 | floor];
    def round2: . * 100 | round / 100;
    [.benchmarks[] | select(.run_type == "iteration")] | group_by(.run_name)
    | map({key: .[0].run_name, value: map(1e9 / .items_per_second)}) | from_entries
    | . as $ns
    | "ns a page: median (lowest to highest)",
      (to_entries[] | "  \(.key)  \(.value | median | round)  (\(.value | min | round) to \(.value | max | round))"),
      "speed against the bare codec: median over median (best over best)",
      ([["pool_store/lz4", "bare_lz4_store"], ["pool_store_first/lz4", "bare_lz4_store"],
        ["pool_load/lz4", "bare_lz4_load"], ["pool_store/zstd", "bare_zstd_store"]][]
       | . as [$ours, $bare]
       | "  \($ours)  \(($ns[$bare] | median) / ($ns[$ours] | median) | round2)  (\(($ns[$bare] | min) / ($ns[$ours] | min) | round2))")'
echo
"$bench/memory_bench"
