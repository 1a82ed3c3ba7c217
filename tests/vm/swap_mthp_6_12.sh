#!/usr/bin/env bash
# A 6.12 guest swaps 64 KiB folios out whole and gets every page back.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

guest --kernel 6.12 --guest mthp=64kB:always -- \
  usemem --verify --corpus /corpus --seed "$SEED" --hook host-sync 380m
expect_swap_served
expect "folios of 64 KiB went out in one piece" '.mthp["hugepages-64kB"].swpout > 1000'
finish
