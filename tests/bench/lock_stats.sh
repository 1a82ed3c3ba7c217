#!/usr/bin/env bash
# What counting locks costs where nobody waits: pool_bench, and the same built without the counting,
# in turn. Ratios are time with over time without.
# usage: tests/bench/lock_stats.sh [ROUNDS [SECONDS_EACH]] [--json FILE]
#        (default 15 rounds of 0.2 s)
set -euo pipefail
. "$(dirname "$0")/lib.sh"
parse_arguments 15 0.2 "$@"

cmake --build "$BUILD" --target pool_bench_plain >"$WORK/build.log" 2>&1 ||
  { cat "$WORK/build.log" >&2; die "pool_bench_plain does not build"; }

cases=(pool_store/lz4 pool_load/lz4 pool_store/none pool_load/none lock_unlock)
declare -A programs=([counting]=pool_bench [plain]=pool_bench_plain)
for ((round = 1; round <= ROUNDS; round++)); do
  progress "$round"
  ways=(counting plain)
  [ $((round % 2)) = 1 ] || ways=(plain counting)
  for case in "${cases[@]}"; do
    for way in "${ways[@]}"; do
      google "${programs[$way]}" "^$case\$" | jq -r --arg way "$way" '.benchmarks[]
        | if (.name == "lock_unlock") and ((.locks_counted > 0) != ($way == "counting"))
          then error("\($way): \(.locks_counted) locks were counted") else . end
        | ["\(.name), \($way)", 1e9 / .items_per_second] | @tsv' | sample_lines
    done
  done
done
progress_done
for case in "${cases[@]}"; do
  goal=""
  [[ $case != *lz4 ]] || goal="<=1.03"
  ratio "$case" "$case, counting" "$case, plain" "$goal"
done
report "lock statistics" "ns a page, or a lock and unlock"
finish
