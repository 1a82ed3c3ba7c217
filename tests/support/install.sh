#!/usr/bin/env bash
# Installs the Debian packages that the named uses need, and only those that are missing.
# usage: install.sh USE...   where USE is build, test, bench or vm
set -euo pipefail

declare -A packages=(
  [build]="g++ cmake ninja-build pkg-config nbdkit nbdkit-plugin-dev liblz4-dev libzstd-dev
           libxxhash-dev libboost1.81-dev prometheus-cpp-dev perl"
  [test]="doctest-dev libnbd-dev libnbd-bin libbenchmark-dev fio zstd curl jq clang
          libclang-rt-14-dev clang-format git util-linux procps man-db"
  [bench]="libbenchmark-dev libnbd-dev fio jq valgrind"
  [vm]="qemu-system-x86 busybox-static cpio kmod xz-utils zstd nbd-client curl jq libnbd-bin
        e2fsprogs"
)

[ $# -gt 0 ] || { echo "usage: $0 build|test|bench|vm..." >&2; exit 2; }
missing=()
for use in "$@"; do
  [ -n "${packages[$use]:-}" ] || { echo "$0: '$use' is not one of build, test, bench, vm" >&2; exit 2; }
  for package in ${packages[$use]}; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
      missing+=("$package")
  done
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ]; then
  echo "$0: missing packages, and only root can install them: ${missing[*]}" >&2
  exit 1
fi
echo "==> installing ${#missing[@]} packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends -q "${missing[@]}" >/dev/null 2>&1 || {
  apt-get update -q
  apt-get install -y --no-install-recommends -q "${missing[@]}"
}
