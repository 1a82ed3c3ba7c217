#!/usr/bin/env bash
# Kernels of all series can be had, and become guests.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

for series in 6.1 6.12 7; do
  image=$("$VM_IMAGES/build-image.sh" "$series")
  case $(cat "$image/version") in
    "$series".*) echo "ok: $(cat "$image/version")" ;;
    *) fail_check "a kernel of series $series" "$(cat "$image/version")" ;;
  esac
done
if "$VM_IMAGES/build-image.sh" 5.4 >"$OUT/log" 2>&1; then
  fail_check "5.4 is refused" "it was not"
fi
grep -q "6.1 6.12 7" "$OUT/log" || fail_check "the refusal lists the series" "$(cat "$OUT/log")"
finish
