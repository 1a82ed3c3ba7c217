#!/usr/bin/env bash
# Boots a guest that swaps on a device served by nbdkit, runs a workload in it, and prints one line
# of JSON: what the workload printed, the guest's swap counters, problems in its kernel log, and the
# server's statistics at each point where the guest met the host. Nothing is left running after it.
# usage: run-guest.sh [OPTION...] [-- WORKLOAD [ARGUMENT...]]
#   --kernel SERIES    6.1 (default), 6.12 or 7
#   --plugin PLUGIN    a file or a name; $CSWAP_PLUGIN, else the cswap of the release build
#   --size SIZE        of the device (1G)
#   --server ARGUMENT  for nbdkit, after the plugin: KEY=VALUE or --filter=NAME (repeatable)
#   --device KIND      virtio-blk (default), nbd (nbd.ko in the guest), zram (no server), none
#   --guest KEY=VALUE  a parameter of the guest: see README.md (repeatable)
#   --mem MIB          of the guest (256)      --cpus N      (2)
#   --timeout SECONDS  for all of it (300)
#   --script FILE      a shell script to run in the guest as the workload
#   --at NAME=COMMAND  run COMMAND here when the guest is at NAME, with $CSWAP_URI (repeatable)
#   --out DIR          keep console.log, events.jsonl, result.json, stats-NAME.json, nbdkit.log
#   --quiet            no progress
# Exit status: 0 when the workload's is 0 and no problem was seen, 1 otherwise, 2 on bad usage.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$VM_IMAGES/host-lib.sh"

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

KERNEL=6.1
PLUGIN=${CSWAP_PLUGIN:-$BUILD/plugin/nbdkit-cswap-plugin.so}
SIZE=1G
DEVICE=virtio-blk
MEM=256
CPUS=2
TIMEOUT=300
SCRIPT=
OUT=
QUIET=
SERVER_ARGS=()
GUEST_ARGS=()
WORKLOAD=()
declare -A AT=()

while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --quiet) QUIET=1; shift; continue ;;
    --) shift; WORKLOAD=("$@"); break ;;
    --*) [ $# -ge 2 ] || usage_error "$1 needs a value" ;;
    *) usage_error "unknown argument '$1' (the workload comes after --)" ;;
  esac
  case $1 in
    --kernel) KERNEL=$2 ;;
    --plugin) PLUGIN=$2 ;;
    --size) SIZE=$2 ;;
    --server) SERVER_ARGS+=("$2") ;;
    --device) DEVICE=$2 ;;
    --guest) GUEST_ARGS+=("cswap.$2") ;;
    --mem) MEM=$2 ;;
    --cpus) CPUS=$2 ;;
    --timeout) TIMEOUT=$2 ;;
    --script) SCRIPT=$2 ;;
    --at) AT[${2%%=*}]=${2#*=} ;;
    --out) OUT=$2 ;;
    *) usage_error "unknown option '$1'" ;;
  esac
  shift 2
done
check_series "$KERNEL"
case $DEVICE in
  virtio-blk | nbd | zram | none) ;;
  *) usage_error "--device '$DEVICE': one of virtio-blk nbd zram none" ;;
esac
[ -z "$SCRIPT" ] || [ -r "$SCRIPT" ] || usage_error "--script '$SCRIPT' cannot be read"
need_tools qemu-system-x86_64 nbdkit jq curl cpio setpriv

# Sockets have short names only: in a folder of their own, not under --out.
RUN=$(mktemp -d "${TMPDIR:-/tmp}/cswap-guest.XXXXXX")
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
OUT=${OUT:-$RUN/out}
mkdir -p "$OUT"
rm -f "$OUT"/stats-*.json

IMAGE=$("$VM_IMAGES/build-image.sh" "$KERNEL")
DEADLINE=$((SECONDS + TIMEOUT))
start_server
start_guest
STARTED=$SECONDS
follow_guest
stop_all
make_result
