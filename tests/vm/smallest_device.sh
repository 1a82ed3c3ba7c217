#!/usr/bin/env bash
# The smallest device, 64 KiB, takes a swap area that can be used.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

guest --kernel 6.1 --size 64K -- true
expect "swapon on 64 KiB" '.swap[0].kb == 60 and .swaps[0].kb == 60'
finish
