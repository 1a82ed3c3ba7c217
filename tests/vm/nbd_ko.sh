#!/usr/bin/env bash
# The guest's own nbd.ko: every block size gives a device that mkswap, blkid and swapon accept, that
# is usable to its last page, and that can be swapped on again after a reconnect; then it swaps.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

guest --kernel 6.1 --device nbd --guest swap=off --size 512M --mem 192 \
  --script "$HERE/guest/nbd_block_sizes.sh" -- \
  usemem --verify --corpus /corpus --seed "$SEED" --hook host-sync 190m
expect "all checks in the guest passed" '(.checks | length) >= 21 and all(.checks[]; .ok)'
expect "it swapped" '.pswpout > 5000 and .pswpin > 5000'
expect "nbd.ko passes discards on" \
  'trimmed("exited") > 0 and stored("exited") <= stored("filled") / 5'
finish
