# Shared by the tests of this folder; sourced, never run.

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
VM_IMAGES=$HERE/../../vm-images
RUN_GUEST=$VM_IMAGES/run-guest.sh
BUILD=${CSWAP_BUILD:-$HERE/../../build/release}
SEED=${CSWAP_SEED:-$RANDOM}
OUT=$(mktemp -d "${TMPDIR:-/tmp}/cswap-vm-test.XXXXXX")
trap 'rm -rf "$OUT"' EXIT
FAILED=0
echo "seed $SEED (CSWAP_SEED=$SEED repeats it)"

# Runs a guest; its result is in $OUT/result.json. Says so when the run itself failed.
guest() {
  "$RUN_GUEST" --out "$OUT" "$@" >/dev/null && return
  fail_check "the guest ran without a problem" \
    "$(jq -c '{status, problem, kernel_log, lines}' "$OUT/result.json" 2>/dev/null)"
  [ -s "$OUT/result.json" ] || exit 1
}

fail_check() {
  echo "FAILED: $1: $2"
  FAILED=$((FAILED + 1))
}

# expect NAME JQ-EXPRESSION: over the result, in which `stats` has the server's, by sync point.
expect() {
  if jq -e "$JQ_HELPERS $2" "$OUT/result.json" >/dev/null 2>&1; then
    echo "ok: $1"
  else
    fail_check "$1" "$2 is not true of $(jq -c "$SUMMARY" "$OUT/result.json")"
  fi
}

# What a failed expectation is about, without the histograms.
SUMMARY='{status, problem, lines, pswpin, pswpout, mthp, swaps, swap, kernel_log,
          checks: [.checks[]? | select(.ok | not)],
          stats: (.stats | map_values([.tenants[] |
            {stored_pages, notify_free, swpout, swpin}]))}'

JQ_HELPERS='
  def stored(at): [.stats[at].tenants[].stored_pages] | add;
  def trimmed(at): [.stats[at].tenants[].notify_free] | add;
  def pages(at; counter): [.stats[at].tenants[] | .[counter] | to_entries[] |
                           .value * pow(2; .key | tonumber)] | add;'

finish() {
  [ "$FAILED" -eq 0 ] || {
    echo "$FAILED expectation(s) failed"
    if [ -e "$OUT/console.log" ]; then
      echo "the end of the guest's log:"
      tail -n 20 "$OUT/console.log"
    fi
    exit 1
  }
}

# What every guest that swapped and ended must show, whatever its kernel.
expect_swap_served() {
  expect "far more was swapped out than the guest's memory could keep" '.pswpout > 20000'
  expect "pages came back" '.pswpin > 20000'
  expect "the pool held most of them" 'stored("filled") > 20000'
  # The server also sees mkswap and the probes for signatures, and nothing else.
  expect "server and guest agree on pages written" \
    'pages("exited"; "swpout") as $out | $out >= .pswpout and $out <= .pswpout + 256'
  expect "server and guest agree on pages read" \
    'pages("exited"; "swpin") as $in | $in >= .pswpin and $in <= .pswpin + 1024'
  expect "the server saw the discards" 'trimmed("exited") > stored("filled") / 2'
  # Discards are of whole slot clusters: one page that is still in use keeps 511 dead ones.
  expect "after the workload the pool is almost empty" \
    'stored("exited") <= stored("filled") / 10'
}
