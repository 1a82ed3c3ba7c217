#!/usr/bin/env bash
# On 8 GiB, more than one discard request can cover: blkdiscard and each kind of discard that swapon
# knows reach the pool, and the kernel shows which kind it took.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

guest --kernel 6.1 --size 8G --guest swap=off --script "$HERE/guest/discard_kinds.sh" -- \
  usemem -n 1 260m --hook host-sync
expect "all checks in the guest passed" '(.checks | length) >= 5 and all(.checks[]; .ok)'
expect "the pool held what was written" 'stored("written") >= 3000'
# virtio-blk discards in pieces of 2 GiB less 512 bytes: of each page at a seam no piece has it all.
expect "blkdiscard emptied it" 'stored("blkdiscarded") <= 4'
expect "and was counted" 'trimmed("blkdiscarded") - trimmed("written") >= 3000'
for kind in on once; do
  expect "swapon with discard '$kind' empties the area" \
    "stored(\"written-$kind\") >= 3000 and stored(\"swapon-$kind\") <= 4"
done
expect "swapon with discard 'pages' leaves the area" 'stored("swapon-pages") >= 3000'
expect "but frees what was swapped" \
  'stored("filled") > 10000 and stored("exited") - 3000 <= stored("filled") / 5'
jq -r '.swap[] | "swapon took \(.swapon_ms) ms: \(.kernel)"' "$OUT/result.json"
finish
