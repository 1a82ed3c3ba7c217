#!/usr/bin/env bash
# A 6.12 guest swaps 64 KiB folios, and gets every page back, from a server with the switches in
# CSWAP_TEST_SWITCHES; the server's statistics show that it did things that way.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

JQ_HELPERS+='
  def large_pages(counter): [.stats.exited.tenants[] | .[counter] | to_entries[] |
    (.key | tonumber) as $order | select($order >= 4) | .value * pow(2; $order)] | add;'
switches=()
for switch in $CSWAP_TEST_SWITCHES; do switches+=(--server "$switch"); done
guest --kernel 6.12 --mem 192 --guest mthp=64kB:always "${switches[@]}" \
  --script "$HERE/guest/swap_then_discard.sh" -- \
  usemem --verify --corpus /corpus --seed "$SEED" --hook host-sync 320m
expect_swap_served
for switch in $CSWAP_TEST_SWITCHES; do
  expect "the server says $switch" ".stats.exited.${switch%%=*} == \"${switch#*=}\""
  case $switch in
    batch=on)
      expect "folios of 64 KiB were stored whole" \
        'large_pages("swpout") > 16000' ;;
    batch=off)
      expect "folios of 64 KiB were stored page by page" \
        'large_pages("swpout_fallback") > 16000 and large_pages("swpout") == 0' ;;
    free=async)
      expect "objects were freed in the background" \
        '.stats.exited.pool | .freed_in_background > .freed_in_request' ;;
    free=sync)
      expect "objects were freed in requests" \
        '.stats.exited.pool | .freed_in_request > 20000 and .freed_in_background == 0' ;;
  esac
done
expect "a discard of the whole device leaves nothing" 'stored("discarded") == 0'
finish
