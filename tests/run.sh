#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. May be run again at any time.
# usage: tests/run.sh [STAGE...]
#   release  optimised build; tidy, unit, stress, http, integration and model tests
#   asan     the same under the address and undefined behaviour sanitizers
#   tsan     the same under the thread sanitizer
#   fuzz     clang's thread safety analysis, and the fuzz targets on their kept corpora
#   vm       real guests under QEMU that swap on the plugin
# Without a stage: all of them.
set -euo pipefail

cd "$(dirname "$0")/.."
jobs=$(nproc)
started=$SECONDS
failed=()

say() { printf '\n==> [%4ds] %s\n' $((SECONDS - started)) "$*"; }

# usage: configure PRESET [CMAKE_ARGUMENT...]
configure() {
  say "configuring preset $1"
  cmake --preset "$@" >"build/$1.configure.log" 2>&1 || { cat "build/$1.configure.log"; return 1; }
}

# usage: build PRESET [--target TARGET...]
build() {
  say "building preset $1"
  cmake --build --preset "$1" -j "$jobs" "${@:2}" -- --quiet
}

# A stage that fails does not keep the others from telling what they find.
run_ctest() {
  local preset=$1
  shift
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error "$@" || failed+=("$preset")
}

stage() {
  case $1 in
    release)
      configure release -DCSWAP_TESTS=ON
      build release
      say "testing preset release"
      run_ctest release -j "$jobs" -LE vm
      ;;
    asan | tsan)
      configure "$1"
      build "$1"
      say "testing preset $1"
      run_ctest "$1" -j "$jobs"
      ;;
    fuzz)
      configure fuzz
      # The plugin too, for clang's thread safety analysis.
      build fuzz --target fuzzers nbdkit-cswap-plugin
      say "running the fuzz targets"
      run_ctest fuzz -j "$jobs" -L fuzz
      ;;
    vm)
      configure release -DCSWAP_TESTS=ON
      build release
      say "booting guests (minutes without /dev/kvm)"
      run_ctest release -L vm --verbose
      ;;
    *)
      echo "$0: '$1' is not one of release, asan, tsan, fuzz, vm" >&2
      exit 2
      ;;
  esac
}

[ $# -gt 0 ] || set -- release asan tsan fuzz vm
mkdir -p build
tests/support/install.sh build test vm
for name in "$@"; do stage "$name"; done

if [ ${#failed[@]} -gt 0 ]; then
  say "FAILED in: ${failed[*]}"
  exit 1
fi
say "all tests passed: $*"
