#!/usr/bin/env bash
# The pool in one process against the kernel's zram on the same pages with the same codec: one
# thread, a page a request. What fio gets from zram is beside it, with data of its own. Needs root,
# and a kernel with zram; takes a device of its own and gives it back.
# usage: tests/bench/zram.sh [ROUNDS [SECONDS_EACH]] [--json FILE]    (default 9 rounds of 1 s)
set -euo pipefail
. "$(dirname "$0")/lib.sh"
parse_arguments 9 1 "$@"
need fio fio
zram_bench=$(program zram_bench)
take_zram 512M
[ -n "$ZRAM" ] || die "$ZRAM_MISSING"

for ((round = 1; round <= ROUNDS; round++)); do
  progress "$round"
  size_zram 512M
  "$zram_bench" "$ZRAM" "$SECONDS_EACH" | sample_lines
  size_zram 512M
  for rw in randwrite randread; do
    sample "fio $rw, zram" "$(zram_fio "$rw" 4k | jq '1e9 / (.read.iops + .write.iops)')"
  done
done
progress_done
for what in "first store" store load; do
  ratio "$what: pool / zram" "$what, pool" "$what, zram" "<=1"
done
report "time a page, lz4, one thread, beside zram's by direct pwrite and pread" "ns"
finish
