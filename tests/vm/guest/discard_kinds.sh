#!/bin/busybox sh
# On vda, of 8 GiB: discards, all at once and by swapon; then runs the command given with swap that
# discards pages only. Old data stands beyond 4 GiB, where a length of 32 bits would not reach.
. /usr/bin/guest-lib

# 1 MiB of the corpus at each of these MiB: 3840 pages.
fill_old_data() {
  local at
  for at in $(seq 5000 5006) $(seq 7000 7006) 8191; do
    dd if=/corpus/java.pages of=/dev/vda bs=1M count=1 seek=$at conv=notrunc,fsync 2>/dev/null ||
      return 1
  done
}

kernel_shows() {
  dmesg | grep 'Adding .* swap on /dev/vda' | tail -n 1 | grep -E " $1\$| $1[^a-zA-Z]"
}

check "old data is written" fill_old_data
host-sync written
check "blkdiscard of 8 GiB" blkdiscard /dev/vda
host-sync blkdiscarded
for kind in on:SSDsc once:SSDs pages:SSDc; do
  fill_old_data
  host-sync "written-${kind%%:*}"
  swap_on vda "${kind%%:*}"
  host-sync "swapon-${kind%%:*}"
  check "the kernel shows ${kind#*:}" kernel_shows "${kind#*:}"
  [ "$kind" = pages:SSDc ] || swapoff /dev/vda
done
checks_status || exit 1
exec "$@"
