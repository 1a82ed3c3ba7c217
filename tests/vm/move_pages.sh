#!/usr/bin/env bash
# Copies 4 MiB of the data on the device at $CSWAP_URI over the 4 MiB after it, as a server that
# mixes its pages up would do.
set -euo pipefail

LENGTH=$((4 << 20))

socket=${CSWAP_URI#*socket=}
piece=$(mktemp "${TMPDIR:-/tmp}/cswap-piece.XXXXXX")
trap 'rm -f "$piece"' EXIT

# The kernel takes slots from many places of the device, so data is in stretches of 8 MiB or so.
start=$(nbdinfo --map --json "$CSWAP_URI" | jq --argjson length $((2 * LENGTH)) \
        'map(select(.type == 0 and .length >= $length)) | first | .offset')
[ "$start" != null ] || { echo "no stretch of $((2 * LENGTH)) bytes of data" >&2; exit 1; }

# The offset filter makes a device of its own from a part of ours.
part() { nbdkit -U - --filter=offset nbd socket="$socket" offset="$1" range="$LENGTH" --run "$2"; }

part "$start" "nbdcopy \"\$uri\" $piece"
part $((start + LENGTH)) "nbdcopy $piece \"\$uri\""
