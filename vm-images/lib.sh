# Shared by the scripts of this folder; sourced, never run.
# Whoever sources it has set -euo pipefail already.

VM_IMAGES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(dirname "$VM_IMAGES")
CACHE=${CSWAP_VM_CACHE:-$VM_IMAGES/cache}
BUILD=${CSWAP_BUILD:-$REPO/build/release}
PROGRAM=$(basename "$0")

# Kernel series and the Debian suite each comes from. Backports move on: a series names the start
# of a version, and the newest one that the suite has is taken.
declare -A SUITE_OF=(
  [6.1]=bookworm
  [6.12]=bookworm-backports
  [7]=trixie-backports
)
ALL_SERIES="6.1 6.12 7"

say() { echo "==> $*" >&2; }
die() {
  echo "$PROGRAM: $*" >&2
  exit 1
}
usage_error() {
  echo "$PROGRAM: $*" >&2
  exit 2
}

check_series() {
  [ -n "${SUITE_OF[${1:-none}]:-}" ] ||
    usage_error "unknown kernel series '${1:-}': one of $ALL_SERIES"
}

# In these folders on Debian, which a user's PATH may lack.
PATH=$PATH:/usr/sbin:/sbin

need_tools() {
  local tool missing=()
  for tool in "$@"; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  [ ${#missing[@]} -eq 0 ] ||
    die "missing: ${missing[*]} (run tests/support/install.sh build vm)"
}

# Holds an exclusive lock until the calling process ends, so that two runs can share the cache.
lock_cache() {
  local name=$1
  mkdir -p "$CACHE"
  exec {LOCK_FD}>"$CACHE/$name.lock"
  flock -n "$LOCK_FD" || {
    say "waiting for another run that prepares $name"
    flock "$LOCK_FD"
  }
}
