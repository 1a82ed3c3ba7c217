# shellcheck shell=bash
# The tables of free.sh and nbd_free.sh, from lines of $WORK/runs: JSON objects with a `variant`, a
# `way` (sync or async), and samples by operation. Sourced after lib.sh.

# usage: percentiles VARIANT OPERATION TITLE [GOAL]; the goal is of the ratio at p99.9.
percentiles() {
  local name goal
  jq -r --arg variant "$1" --arg operation "$2" '
    select(.variant == $variant) | .way as $way | .[$operation]
    | (["p50", .p50_ns], ["p99", .p99_ns], ["p99.9", .p999_ns],
       ["p99.99", .p9999_ns], ["max", .max_ns])
    | ["\(.[0]), free=\($way)", .[1] / 1000] | @tsv' "$WORK/runs" | sample_lines
  for name in p50 p99 p99.9 p99.99 max; do
    goal=''
    [ "$name" != p99.9 ] || goal=${4:-}
    ratio "$name: sync / async" "$name, free=sync" "$name, free=async" "$goal"
  done
  report "$3" "us"
}

# The columns of E5, and what waited for more than such a request usually takes.
# usage: shares VARIANT OPERATION TITLE USUAL_US; the last is 20 or 100.
shares() {
  jq -r --arg variant "$1" --arg operation "$2" --arg usual "$4" '
    select(.variant == $variant) | .way as $way | .[$operation]
    | (["0-100 us", .below_100us], ["100-500 us", .below_500us - .below_100us],
       ["above 500 us", 1 - .below_500us], ["above \($usual) us", 1 - .["below_\($usual)us"]])
    | ["\(.[0]), free=\($way)", .[1] * 100] | @tsv' "$WORK/runs" | sample_lines
  ratio "above $4 us: sync / async" "above $4 us, free=sync" "above $4 us, free=async"
  report "$3" "%"
}

# The ways of a round, which take turns to be the first.
# usage: ways_of ROUND
ways_of() { if [ $(($1 % 2)) = 1 ]; then echo sync async; else echo async sync; fi; }
