#!/usr/bin/env bash
# A pool at its limit refuses writes: the guest keeps those pages, loses none, and says so in its
# log, which is also how we know that the log is looked at.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# With much more than what memory and a full pool hold, the guest would try for ever.
if "$RUN_GUEST" --out "$OUT" --kernel 6.1 --timeout 90 --server mem_limit=32M -- \
  usemem --verify --corpus /corpus --seed "$SEED" --hook host-sync 195m >/dev/null; then
  fail_check "errors in the kernel log end the run with an error" "it ended well"
fi
expect "the pool was full" '[.stats.checked.tenants[].pool_limit_hit] | add > 0'
expect "every page came back right all the same" '.status == 0 and .problem == null'
expect "the guest's kernel noticed" '.kernel_log | any(test("Write-error on swap-device"))'
expect "and the pool stayed within its limit" \
  '.stats.exited.pool.mem_used_max <= 32 * 1048576 * 1.05'
finish
