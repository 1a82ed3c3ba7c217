#!/usr/bin/env bash
# What a client sees: fio over a unix socket against cswap and its peers, in turn, several rounds
# in one run, so that ratios hold although the machine's speed drifts. Prints tables of medians
# with their spread, and the ratios round by round.
# usage: tests/bench/nbd.sh [ROUNDS [SECONDS_EACH]]    (default 5 rounds of 3 s)
set -euo pipefail

cd "$(dirname "$0")/../.."
rounds=${1:-5}
seconds=${2:-3}
plugin=$PWD/build/release/plugin/nbdkit-cswap-plugin.so
[ -e "$plugin" ] || { echo "$0: build preset release first: $plugin is missing" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

declare -A servers=(
  [null]="null 1G"
  [memory]="memory 1G"
  [memory-zstd]="memory 1G allocator=zstd"
  [cswap-lz4]="$plugin 1G"
  [cswap-zstd]="$plugin 1G compressor=zstd"
)

# Pages are 60 % compressible in chunks of 4K. Reads find pages that were written before.
fio_job() {
  local rw=$1 bs=$2
  local common="--ioengine=nbd --uri=\"\$uri\" --iodepth=16 --size=512M --output-format=json"
  common+=" --buffer_compress_percentage=60 --buffer_compress_chunk=4k --refill_buffers"
  if [[ $rw == *read ]]; then
    echo "fio --name=fill $common --rw=write --bs=256k >/dev/null && "
  fi
  echo "fio --name=run $common --rw=$rw --bs=$bs --time_based --runtime=$seconds"
}

measure() {
  local server=$1 rw=$2 bs=$3
  # shellcheck disable=SC2086  # the arguments of a server are words
  nbdkit -U - ${servers[$server]} --run "$(fio_job "$rw" "$bs" | tr -d '\n')" 2>/dev/null |
    sed -n '/^{/,$p' | jq '.jobs[0] | .read.iops + .write.iops | floor'
}

# usage: compare RW BS SERVER...; the ratios are to each of the other servers.
compare() {
  local rw=$1 bs=$2
  shift 2
  local round server
  for ((round = 1; round <= rounds; round++)); do
    for server in "$@"; do
      measure "$server" "$rw" "$bs" >>"$work/$rw.$bs.$server"
    done
    printf '\r%s %s: round %d of %d' "$rw" "$bs" "$round" "$rounds" >&2
  done
  printf '\r%40s\r' '' >&2
  printf '\n%s %s, iodepth 16, requests a second\n' "$rw" "$bs"
  for server in "$@"; do
    sort -n "$work/$rw.$bs.$server" | awk -v n="$server" \
      '{v[NR]=$1} END {printf "  %-12s %8d  (%d to %d)\n", n, v[int((NR+1)/2)], v[1], v[NR]}'
  done
}

ratio() {
  local rw=$1 bs=$2 ours=$3 theirs=$4 goal=$5
  paste "$work/$rw.$bs.$ours" "$work/$rw.$bs.$theirs" | awk '{print $1 / $2}' | sort -n |
    awk -v n="$ours / $theirs" -v g="$goal" '{v[NR]=$1}
      END {printf "  %-28s %6.2f  (%.2f to %.2f)   goal %s\n", n, v[int((NR+1)/2)], v[1], v[NR], g}'
}

compare randread 4k null memory cswap-lz4 cswap-zstd
ratio randread 4k cswap-lz4 null 0.9
ratio randread 4k cswap-lz4 memory 1.0
compare randwrite 4k null memory memory-zstd cswap-lz4 cswap-zstd
ratio randwrite 4k cswap-lz4 null 0.6
ratio randwrite 4k cswap-lz4 memory-zstd 5
ratio randwrite 4k cswap-zstd memory-zstd 2
