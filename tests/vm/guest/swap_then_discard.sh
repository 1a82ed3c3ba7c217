#!/bin/busybox sh
# Runs the command given, which swaps; then takes the swap area away and discards the whole device.
. /usr/bin/guest-lib

"$@" || exit 1
host-sync exited
swapoff /dev/vda || exit 1
blkdiscard -f /dev/vda || exit 1
host-sync discarded
