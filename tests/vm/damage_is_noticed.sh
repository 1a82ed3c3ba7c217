#!/usr/bin/env bash
# The tests themselves: when the pages of a guest are damaged behind its back, its check fails, says
# which page it found, and the run ends with an error. The damage is the worst kind: pages that are
# whole and valid, but belong elsewhere.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# Only the workload swaps, or the guest itself would die first.
if "$RUN_GUEST" --out "$OUT" --kernel 6.1 --mem 512 --guest memory_max=100M \
  --at "filled=$HERE/move_pages.sh" \
  -- usemem --verify --corpus /corpus --seed "$SEED" --hook host-sync 240m >/dev/null; then
  fail_check "damaged pages end the run with an error" "it ended well"
fi
expect "the device was damaged while the guest waited" '.problem == null'
expect "the guest says which page it wanted and which it found" \
  '[.lines[] | select(test("MISMATCH at offset 0x.*found at its start: offset 0x"))] | length > 0'
finish
