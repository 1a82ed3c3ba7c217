#!/usr/bin/env bash
# usemem on this machine: its lines are those of vm-scalability's tool, it refuses what it does not
# know with 2, and its verifying mode passes on memory that is sound.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

USEMEM=$BUILD/vm-images/usemem
mkdir "$OUT/corpus"
for file in "$HERE"/../corpus/*.pages.zst; do
  zstd -qd "$file" -o "$OUT/corpus/$(basename "$file" .zst)"
done

prints() {
  local name=$1 pattern=$2
  shift 2
  "$USEMEM" "$@" >"$OUT/output" 2>&1 || true
  if grep -qE "$pattern" "$OUT/output"; then
    echo "ok: $name"
  else
    fail_check "$name" "$(cat "$OUT/output")"
  fi
}
refuses() {
  local status=0
  "$USEMEM" "$@" >"$OUT/refusal" 2>&1 || status=$?
  if [ $status -eq 2 ] && [ -s "$OUT/refusal" ]; then
    echo "ok: refuses '$*': $(cat "$OUT/refusal")"
  else
    fail_check "refuses '$*'" "exit $status: $(cat "$OUT/refusal")"
  fi
}

prints "an eighth is counted for the allocation" \
  '^9437184 bytes / [0-9]+ usecs = [0-9]+ KB/s$' -a -n 1 8m
prints "the time to free" '^[0-9]+ usecs to free memory$' 8m
prints "reading again" '^read again 8388608 bytes' -Z -q -r 1 8m
prints "a step of a page counts a word a page" '^1064960 bytes' -j 4k -u 2m 8m
prints "a size in bytes" '^4608 bytes' 4096
for arguments in "" "-f file 1m" "--bogus 1m" "-Q 1m" "-n 0 1m" "-n two 1m" "1x" "-1" "1m 1m" "-n" \
  "--verify 1m" "--verify --corpus $OUT/none 1m" "--corpus $OUT/corpus 1m" "-j 3 1m" \
  "--verify --corpus $OUT/corpus 1000" "--verify --corpus $OUT/corpus -o 1m"; do
  # shellcheck disable=SC2086  # words
  refuses $arguments
done
"$USEMEM" --verify --corpus "$OUT/corpus" --seed "$SEED" --passes 3 -R -n 2 -u 5m --hook echo 32m \
  >"$OUT/verify" || fail_check "verifies sound memory" "$(cat "$OUT/verify")"
grep -qx filled "$OUT/verify" && grep -qx checked "$OUT/verify" ||
  fail_check "calls the hook at each phase" "$(cat "$OUT/verify")"
finish
