#!/bin/busybox sh
# On nbd0, connected by init: block sizes, page sizes, reconnects; then runs the command given.
. /usr/bin/guest-lib

# A swap signature that blkid finds on the device itself, not in what the kernel has cached.
signature_found() {
  blockdev --flushbufs /dev/nbd0
  blkid -p /dev/nbd0 | grep 'TYPE="swap"'
}

last_page_usable() {
  local last=$(($(blockdev --getsize64 /dev/nbd0) / 4096 - 1))
  dd if=/corpus/gcc.pages of=/dev/nbd0 bs=4096 count=1 seek=$last conv=notrunc,fsync 2>/dev/null &&
    blockdev --flushbufs /dev/nbd0 &&
    dd if=/dev/nbd0 of=/tmp/back bs=4096 count=1 skip=$last 2>/dev/null &&
    dd if=/corpus/gcc.pages of=/tmp/sent bs=4096 count=1 2>/dev/null &&
    cmp /tmp/sent /tmp/back
}

swapon_and_off() { swapon --discard /dev/nbd0 && swapoff /dev/nbd0; }

nbd_disconnect nbd0
for block in 512 1024 4096; do
  check "connects with blocks of $block" nbd_connect nbd0 $block || exit 1
  check "mkswap on blocks of $block" mkswap /dev/nbd0
  check "blkid finds the signature" signature_found
  check "its last page is usable" last_page_usable
  # The last page belongs to the area; swapon looks at the first only.
  check "swapon" swapon_and_off
  nbd_disconnect nbd0
  check "connects again" nbd_connect nbd0 $block || exit 1
  check "swapon after the reconnect" swapon_and_off
  check "mkswap for pages of 64 KiB" mkswap -p 65536 /dev/nbd0
  check "blkid finds that signature" signature_found
  nbd_disconnect nbd0
done
checks_status || exit 1

nbd_connect nbd0 "" || exit 1
swap_on nbd0 on
exec "$@"
