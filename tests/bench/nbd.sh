#!/usr/bin/env bash
# What a client sees: fio over a unix socket against cswap, its old switches and its peers, in turn,
# on one connection and on several; and the kernel's zram by direct I/O, one job, where the machine
# has it. Prints requests a second, the ratios round by round, and all medians in one table.
# usage: tests/bench/nbd.sh [ROUNDS [SECONDS_EACH]] [--json FILE] [--connections "1 4"]
#        [--workloads "randwrite/4k randread/4k randwrite/64k randread/64k"]
#        [--servers "null memory memory-zstd cswap-lz4 cswap-zstd cswap-old zram"]
# By default 5 rounds of 3 s, which takes 20 minutes.
# `nbdkit memory` is the sparse allocator, its default. Pages are 60 % compressible, as fio makes
# them; nbd_corpus.sh has real ones.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
OPTION[connections]="1 4"
OPTION[servers]="null memory memory-zstd cswap-lz4 cswap-zstd cswap-old zram"
OPTION[workloads]="randwrite/4k randread/4k randwrite/64k randread/64k"
parse_arguments 5 3 "$@"
need fio fio
need nbdkit nbdkit
[ -e "$PLUGIN" ] || die "build preset release first: no $PLUGIN"

declare -A servers=(
  [null]="null 1G"
  [memory]="memory 1G"
  [memory-zstd]="memory 1G allocator=zstd"
  [cswap-lz4]="$PLUGIN 1G"
  [cswap-zstd]="$PLUGIN 1G compressor=zstd"
  [cswap-old]="$PLUGIN 1G $OLD_SWITCHES"
)
read -ra order <<<"${OPTION[servers]}"
ZRAM=''
if among "${order[*]}" zram; then
  take_zram 1G
  [ -n "$ZRAM" ] || echo "zram is left out: $ZRAM_MISSING" >&2
fi

# Takes a sample of requests a second.
# usage: measure SERVER RW BLOCK_SIZE CONNECTIONS
measure() {
  local rw=$2 bs=$3 connections=$4
  if [ "$1" = zram ]; then
    size_zram 1G
    zram_fio "$rw" "$bs" >"$WORK/job"
  else
    start_server "${servers[$1]:?"no server $1"}"
    run_fio "$rw" "$bs" "$connections" "--ioengine=nbd --uri=$URI --iodepth=16" >"$WORK/job"
    stop_server
  fi
  sample "$1" "$(jq '.read.iops + .write.iops | floor' "$WORK/job")"
}

# usage: goal_of RW/BLOCK_SIZE OURS/THEIRS
goal_of() {
  case "$1 $2" in
    "randwrite/4k cswap-lz4/null") echo ">=0.75" ;;
    "randwrite/4k cswap-lz4/memory-zstd") echo ">=5" ;;
    "randwrite/4k cswap-zstd/memory-zstd") echo ">=2" ;;
    "randread/4k cswap-lz4/null") echo ">=0.9" ;;
    "randread/4k cswap-lz4/memory") echo ">=1" ;;
  esac
}

# usage: compare RW/BLOCK_SIZE CONNECTIONS
compare() {
  local workload=$1 connections=$2 server pair round measured=()
  for server in "${order[@]}"; do
    [[ $server != zram || (-n $ZRAM && $connections = 1) ]] || continue
    measured+=("$server")
  done
  for ((round = 1; round <= ROUNDS; round++)); do
    progress "$round"
    for server in "${measured[@]}"; do
      measure "$server" "${workload%/*}" "${workload#*/}" "$connections"
    done
  done
  progress_done
  for pair in cswap-lz4/{null,memory,memory-zstd,cswap-old,zram} cswap-zstd/memory-zstd; do
    among "${measured[*]}" "${pair%/*}" "${pair#*/}" || continue
    ratio "${pair/\// / }" "${pair%/*}" "${pair#*/}" "$(goal_of "$workload" "$pair")"
  done
  report "$workload, $connections x iodepth 16" "requests/s"
}

for connections in ${OPTION[connections]}; do
  for workload in ${OPTION[workloads]}; do compare "$workload" "$connections"; done
done

printf '\nmedians, requests/s (zram: one job, direct, psync)\n%-32s' ""
printf ' %11s' "${order[@]}"
echo
jq -r --arg order "${order[*]}" \
  '[.title, (.values as $v | ($order | split(" "))[] | $v[.].median // "-" | tostring)] | @tsv' \
  "$WORK/sections" | awk -F'\t' '{printf "%-32s", $1; for (i = 2; i <= NF; i++) printf " %11s", $i
                                  print ""}'
finish
