#!/usr/bin/env bash
# The whole of cswap in one command: installs what is needed, builds, boots a real kernel in QEMU
# that swaps on a cswap device, pushes far more memory than the guest has through it, checks every
# byte, and prints what guest and pool saw of it.
# usage: demo.sh [OPTION...]
#   --kernel SERIES      6.1, 6.12 (default) or 7
#   --size SIZE          of the device (1G)          --mem MIB    of the guest (256)
#   --workload SIZE      memory that is used (400m)  --seed N     of its content (random)
#   --server KEY=VALUE   a parameter of the plugin, such as compressor=zstd (repeatable)
#   --out DIR            keep logs and statistics
# Exit status: 0 only if all pages came back right, the guest's kernel had nothing to complain
# about, and the pool was almost empty after the workload had ended.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

KERNEL=6.12
SIZE=1G
MEM=256
WORKLOAD=400m
SEED=$RANDOM
SERVER=()
OUT=

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --*) [ $# -ge 2 ] || usage_error "$1 needs a value" ;;&
    --kernel) KERNEL=$2 ;;
    --size) SIZE=$2 ;;
    --mem) MEM=$2 ;;
    --workload) WORKLOAD=$2 ;;
    --seed) SEED=$2 ;;
    --server) SERVER+=(--server "$2") ;;
    --out) OUT=$2 ;;
    *) usage_error "unknown argument '$1'" ;;
  esac
  shift 2
done
check_series "$KERNEL"

if [ -z "$OUT" ]; then
  OUT=$(mktemp -d "${TMPDIR:-/tmp}/cswap-demo.XXXXXX")
  trap 'rm -rf "$OUT"' EXIT
fi
mkdir -p "$OUT"

# A build directory that a developer has is used as it is; a fresh clone gets one without tests,
# which need more packages.
build() {
  if [ ! -e "$BUILD/build.ninja" ]; then
    BUILD=$REPO/build/demo
    if [ ! -e "$BUILD/build.ninja" ]; then
      cmake -S "$REPO" --preset release -B "$BUILD" -DCSWAP_TESTS=OFF
    fi
  fi
  cmake --build "$BUILD" --target nbdkit-cswap-plugin usemem
}

install_and_build() {
  "$REPO/tests/support/install.sh" build vm
  say "building (a minute or two the first time)"
  (cd "$REPO" && build) >"$OUT/build.log" 2>&1 || {
    tail -n 30 "$OUT/build.log" >&2
    die "the build failed"
  }
  [ -e "$BUILD/vm-images/usemem" ] || BUILD=$REPO/build/demo
  export CSWAP_BUILD=$BUILD CSWAP_PLUGIN=$BUILD/plugin/nbdkit-cswap-plugin.so
}

run() {
  local options=()
  # From 6.12 on the kernel can swap 64 KiB out in one piece; before that it has 4 KiB pages only.
  [ "$KERNEL" = 6.1 ] || options+=(--guest mthp=64kB:always)
  "$VM_IMAGES/run-guest.sh" --kernel "$KERNEL" --size "$SIZE" --mem "$MEM" --out "$OUT" \
    "${options[@]}" "${SERVER[@]}" -- \
    usemem --verify --corpus /corpus --seed "$SEED" --hook host-sync "$WORKLOAD" >/dev/null
}

value() { jq -r "$1" "$OUT/result.json"; }

JQ_HELPERS='
  def mib: . / 1048576 | floor | "\(.) MiB";
  def tenant(at; field): [.stats[at].tenants[] | .[field]] | add;
  def rate(what): [.lines[] | select(startswith(what + " ")) |
                   capture("= (?<kib>[0-9]+) KB/s").kib | tonumber / 1024 | floor] | first;
  def peak: if tenant("checked"; "stored_pages") then "checked" else "filled" end;'

# Two columns: what the guest saw, what the pool saw.
table() {
  jq -r --arg workload "$WORKLOAD" "$JQ_HELPERS"'
    peak as $peak | tenant($peak; "orig_data_size") as $orig |
    tenant($peak; "compr_data_size") as $compr |
    [["guest", "pool, when all was checked"],
     ["kernel", .kernel, "cswap", "\(.stats[$peak].version), \(.stats[$peak].compressor // "")"],
     ["memory", "\(.boot.mem_kb / 1024 | floor) MiB",
      "pages stored", tenant($peak; "stored_pages")],
     ["swap area", (.swap[0].kb * 1024 | mib), "their size", ($orig | mib)],
     ["workload used", $workload, "compressed to", ($compr | mib)],
     ["swapped out", "\(.pswpout) pages", "ratio", ($orig / $compr * 100 | round / 100)],
     ["swapped in", "\(.pswpin) pages", "memory used", (.stats[$peak].pool.mem_used_total | mib)],
     ["in 64 KiB pieces", (.mthp["hugepages-64kB"].swpout // 0),
      "same-filled", tenant($peak; "same_pages")],
     ["filled at", "\(rate("fill")) MiB/s", "stored raw", tenant($peak; "huge_pages")],
     ["checked at", "\(rate("check")) MiB/s",
      "trimmed, by the end", tenant("exited"; "notify_free")],
     ["took", "\(.seconds) s (\(.accel))",
      "pages left at the end", tenant("exited"; "stored_pages")]] |
    .[] | if length == 2 then [.[0], "", .[1], ""] else . end | map(tostring) | join("|")
  ' "$OUT/result.json" | while IFS='|' read -r left left_value right right_value; do
    printf '  %-17s %-27s  %-22s %s\n' "$left" "$left_value" "$right" "$right_value"
  done
}

FAILED=0
verdict() {
  local name=$1
  if value "$JQ_HELPERS $2" 2>/dev/null | grep -qx true; then
    echo "  ok      $name"
  else
    echo "  FAILED  $name"
    FAILED=1
  fi
}

install_and_build
say "a guest of $MEM MiB uses $WORKLOAD of memory on a cswap device of $SIZE (seed $SEED)"
RUN_STATUS=0
run || RUN_STATUS=$?
[ -s "$OUT/result.json" ] || die "the guest did not run"
echo
table || true
echo
verdict "every byte came back as it was written" \
  '.status == 0 and (.lines | any(startswith("check ")))'
verdict "the guest really swapped" '.pswpout > 10000 and .pswpin > 10000'
verdict "nothing in the guest's kernel log" '.kernel_log == []'
verdict "server and guest ended as they should" '.problem == null'
verdict "the discards reached the pool: almost nothing is left in it" \
  'tenant("exited"; "notify_free") > 0 and
   tenant("exited"; "stored_pages") <= tenant(peak; "stored_pages") / 10'
if [ $FAILED -ne 0 ] || [ $RUN_STATUS -ne 0 ]; then
  value '.problem // empty, .kernel_log[], (.lines // [])[]' >&2
  exit 1
fi
