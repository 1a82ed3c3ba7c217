#!/usr/bin/env bash
# A 6.1 guest, which swaps page by page and sends zero pages too, with two tasks at random and no
# readahead, gets every page back through two generations, and the pool is empty after it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

guest --kernel 6.1 --mem 192 --guest page_cluster=0 --script "$HERE/guest/swap_then_discard.sh" \
  -- usemem --verify --corpus /corpus --seed "$SEED" --passes 2 -R -n 2 --hook host-sync 100m
expect_swap_served
expect "swap was taken as a device that does not rotate and discards" \
  '.swap[0].kernel | test("SSDsc")'
expect "a discard of the whole device leaves nothing" 'stored("discarded") == 0'
finish
