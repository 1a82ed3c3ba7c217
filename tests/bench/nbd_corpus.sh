#!/usr/bin/env bash
# 64 KiB random writes of real pages over NBD, over older content, on four connections: the
# throughput against what bare liblz4 does to the same pages on as many cores as the server got, and
# the bytes that a second of the server's CPU time serves. What the transport costs is what nbdkit
# null shows.
# usage: tests/bench/nbd_corpus.sh [ROUNDS [SECONDS_EACH]] [--json FILE] [--connections N]
#        [--depth N] [--size 512M] [--servers "null memory cswap cswap-old"]
#        (default 7 rounds of 2 s)
set -euo pipefail
. "$(dirname "$0")/lib.sh"
OPTION[connections]=4
OPTION[depth]=16
OPTION[size]=512M
OPTION[servers]="null memory cswap cswap-old"
parse_arguments 7 2 "$@"
need nbdkit nbdkit
nbd_load=$(program nbd_load)

size=${OPTION[size]}
declare -A servers=(
  [null]="null $size"
  [memory]="memory $size"
  [cswap]="$PLUGIN $size"
  [cswap-old]="$PLUGIN $size $OLD_SWITCHES"
)
read -ra order <<<"${OPTION[servers]}"

# usage: measure SERVER
measure() {
  start_server "${servers[$1]}"
  "$nbd_load" "$URI" randwrite 65536 "${OPTION[connections]}" "${OPTION[depth]}" \
    "$SECONDS_EACH" "$SERVER_PID" |
    jq -c --arg server "$1" --argjson round "$round" '. + {$server, $round}' >>"$WORK/runs"
  stop_server
}

for ((round = 1; round <= ROUNDS; round++)); do
  progress "$round"
  for server in "${order[@]}"; do measure "$server"; done
  # By CPU time, so a core's rate: with one core at work, and with all.
  google pool_bench '^bare_lz4_store$' | jq -c --argjson round "$round" \
    '.benchmarks[0] | {server: "bare", $round, bytes_per_s: .bytes_per_second}' >>"$WORK/runs"
  google pool_bench '^all_cores_lz4_store/' | jq -c --argjson round "$round" \
    '.benchmarks[0] | {server: "bare-all", $round, bytes_per_s: .bytes_per_second}' >>"$WORK/runs"
done
progress_done

# usage: column NAME FIELD SERVER...; in MB/s, but for server_cores.
column() {
  local name=$1 field=$2 server
  shift 2
  for server in "$@"; do
    jq -r --arg server "$server" --arg name "$name" --arg field "$field" '
      select(.server == $server)
      | ["\($server): \($name)", .[$field] / (if $field == "server_cores" then 1 else 1e6 end)]
      | @tsv' "$WORK/runs" | sample_lines
  done
}
column "throughput" bytes_per_s "${order[@]}"
for other in null memory cswap-old; do
  among "${order[*]}" cswap "$other" || continue
  ratio "throughput: cswap / $other" "cswap: throughput" "$other: throughput"
done
report "64 KiB random writes of the corpus, ${OPTION[connections]} x depth ${OPTION[depth]}" "MB/s"

column "cores" server_cores "${order[@]}"
report "CPU time of the server a second" "cores"

column "served" bytes_per_server_cpu_s "${order[@]}"
column "lz4, one core at work" bytes_per_s bare
column "lz4, all cores at work" bytes_per_s bare-all
for server in cswap cswap-old; do
  among "${order[*]}" "$server" || continue
  goal=""
  [ "$server" != cswap ] || goal=">=0.8"
  ratio "$server / lz4, one core at work" "$server: served" "bare: lz4, one core at work" "$goal"
  ratio "$server / lz4, all cores at work" "$server: served" "bare-all: lz4, all cores at work"
done
report "bytes a second of CPU time; ratios are throughput / (bare rate * cores)" "MB/s"

among "${order[*]}" null || { finish; exit; }
# What a server that did nothing but lz4, and all else as null does, would reach.
jq -s '(map(select(.server == "null") | .bytes_per_server_cpu_s) | add / length) as $null
  | (map(select(.server == "bare") | .bytes_per_s) | add / length) as $bare
  | {ceiling: (1 / (1 / $null + 1 / $bare) / $bare)}' "$WORK/runs" >"$WORK/ceiling"
add_section <"$WORK/ceiling"
printf '\nnull plus bare lz4, and nothing else, would reach %.2f of bare lz4.\n' \
  "$(jq .ceiling "$WORK/ceiling")"
finish
