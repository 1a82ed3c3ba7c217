#!/usr/bin/env bash
# Instructions a page, by request and switch, as callgrind counts them: the work of the uncontended
# path, on a machine that is too small or too noisy to show it in time. One run each, since counts
# repeat.
# usage: tests/bench/instructions.sh [--pages N] [--json FILE]    (default 2048 pages)
set -euo pipefail
. "$(dirname "$0")/lib.sh"
OPTION[pages]=2048
parse_arguments 1 0 "$@"
need valgrind valgrind
driver=$(program instructions_driver)

# The sum of the given files of callgrind, which must be there.
total() { awk '/^(summary|totals):/ && !seen[FILENAME]++ {n += $2} END {printf "%.0f\n", n}' "$@"; }

# usage: callgrind OUT REQUEST SWITCHES OPTION...; prints the number of pages.
callgrind() {
  valgrind -q --tool=callgrind --callgrind-out-file="$1" "${@:4}" \
    "$driver" "$2" "$3" "${OPTION[pages]}"
}

# Prints instructions a page: in the request, of it in the codec, and in the pool's own threads.
# usage: measure REQUEST SWITCHES
measure() {
  local request=$1 switches=$2 pages codec background=0
  rm -f "$WORK"/out*
  pages=$(callgrind "$WORK/out" "$request" "$switches" --collect-atstart=no \
    --toggle-collect=cswap_measured)
  codec=$(callgrind_annotate --inclusive=yes --threshold=100 "$WORK/out" | awk '
    /Lz4Context::/ { gsub(",", "", $1); if ($1 > most) most = $1 } END { print most + 0 }')
  if [[ $switches != *free=sync* && $request != load* ]]; then
    # All that the other threads ever do is to free what the measured requests displaced.
    callgrind "$WORK/out-all" "$request" "$switches" --separate-threads=yes >/dev/null
    rm -f "$WORK/out-all-01"
    local others=("$WORK"/out-all-*)
    [ ! -e "${others[0]}" ] || background=$(total "${others[@]}")
  fi
  awk -v total="$(total "$WORK/out")" -v codec="$codec" -v background="$background" -v n="$pages" \
    'BEGIN {printf "%.1f %.1f %.1f\n", total / n, codec / n, background / n}'
}

printf '%-10s %-36s %10s %10s %14s %12s\n' "" "instructions a page" "request" "in codec" \
  "without codec" "background"
for request in store_4k store_64k load_4k discard_2m; do
  for switches in "" alloc=global batch=off free=sync "$OLD_SWITCHES"; do
    # Loads know no switch but the allocator's, if any.
    [[ $request != load* || "batch=off free=sync" != *"$switches"* || -z $switches ]] || continue
    read -r in_request codec background < <(measure "$request" "$switches")
    pool=$(awk -v a="$in_request" -v b="$codec" 'BEGIN {printf "%.1f\n", a - b}')
    printf '%-10s %-36s %10s %10s %14s %12s\n' "$request" "${switches:-all new}" "$in_request" \
      "$codec" "$pool" "$background"
    jq -n --arg request "$request" --arg switches "$switches" --argjson instructions "$in_request" \
      --argjson in_codec "$codec" --argjson background "$background" \
      '{$request, $switches, $instructions, $in_codec, $background}' | add_section
  done
done
finish
