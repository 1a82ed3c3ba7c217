#!/usr/bin/env bash
# Fetches a Debian cloud kernel into the cache and prints the directory it is in:
#   vmlinuz, modules/ (a tree as in lib/modules/VERSION), version, packages
# The machine's own apt stays untouched: lists, cache and sources are private to this folder; only
# the mirror, and whatever proxy apt is configured with, come from the machine.
# usage: fetch-kernel.sh [--update] SERIES
set -euo pipefail
. "$(dirname "$0")/lib.sh"

META=linux-image-cloud-amd64
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

# apt itself reads its sources, so that both of its file formats and all its options are understood.
find_mirror() {
  local codename
  if [ -n "${CSWAP_DEBIAN_MIRROR:-}" ]; then
    echo "$CSWAP_DEBIAN_MIRROR"
    return
  fi
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v codename="$codename" '
      $3 == "main" && $2 == codename { exact = exact ? exact : $1 }
      $3 == "main" && ($2 == "stable" || $2 == "oldstable") { alias = alias ? alias : $1 }
      END { if (exact) print exact; else if (alias) print alias }'
}

private_apt() {
  local tool=$1
  shift
  "$tool" -q -o Dir::State::lists="$APT_STATE/lists" -o Dir::State::status="$APT_STATE/status" \
    -o Dir::Cache="$APT_STATE/cache" -o Dir::Etc::sourcelist="$APT_STATE/sources.list" \
    -o Dir::Etc::sourceparts="$APT_STATE/none" -o Dir::Etc::preferences="$APT_STATE/none" \
    -o Dir::Etc::preferencesparts="$APT_STATE/none" \
    -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User=root \
    -o APT::Update::Error-Mode=any -o Acquire::Languages=none -o Acquire::Retries=2 "$@"
}

refresh_lists() {
  local mirror
  mirror=$(find_mirror)
  [ -n "$mirror" ] ||
    die "apt has no Debian mirror configured: set CSWAP_DEBIAN_MIRROR to one"
  [ -r "$KEYRING" ] || die "$KEYRING is missing: install debian-archive-keyring"
  mkdir -p "$APT_STATE/lists/partial" "$APT_STATE/cache/archives/partial" "$APT_STATE/none"
  : >"$APT_STATE/status"
  printf '%s [signed-by=%s] %s %s main\n' deb "$KEYRING" "$mirror" "${SUITE_OF[$SERIES]}" \
    >"$APT_STATE/sources.list"
  say "reading the package list of ${SUITE_OF[$SERIES]}"
  private_apt apt-get update >"$APT_STATE/update.log" 2>&1 || {
    cat "$APT_STATE/update.log" >&2
    die "cannot read the package list of ${SUITE_OF[$SERIES]}:" \
        "is there a network, or a proxy that apt should know of?"
  }
}

# The names and versions of all packages of the newest kernel of the series, as NAME=VERSION.
# From 7.x a kernel is split, and its image package only depends on the parts: vmlinuz is in
# linux-binary-*, the list of what is built in is in linux-base-*.
choose_packages() {
  local version image
  version=$(private_apt apt-cache madison "$META" | awk -F' *[|] *' '{print $2}' |
            grep -E "^${SERIES//./\\.}\." | head -n 1) ||
    die "${SUITE_OF[$SERIES]} has no kernel of series $SERIES"
  image=$(private_apt apt-cache show "$META=$version" | sed -n 's/^Depends: //p' |
          tr ',' '\n' | grep -oE 'linux-image-[0-9][^ ]*') ||
    die "$META $version names no kernel image"
  echo "$image=$version"
  private_apt apt-cache show "$image=$version" | sed -n 's/^Depends: //p' | tr ',' '\n' |
    grep -oE 'linux-(base|binary|modules)-[0-9][^ ]*' | sed "s/\$/=$version/" || true
}

unpack() {
  local deb vmlinuz modules version
  for deb in "$WORK"/debs/*.deb; do
    dpkg -x "$deb" "$WORK/tree"
    echo "$(dpkg-deb -W --showformat '${Package} ${Version}' "$deb")" \
         "sha256:$(sha256sum "$deb" | cut -d' ' -f1)"
  done >"$WORK/packages"
  vmlinuz=$(find "$WORK/tree" -type f -name 'vmlinuz*' | head -n 1)
  modules=$(find "$WORK/tree" -type d -path '*lib/modules/*' -name kernel | head -n 1)
  [ -n "$vmlinuz" ] && [ -n "$modules" ] || die "no vmlinuz or no modules in: $(ls "$WORK/debs")"
  version=$(basename "$(dirname "$modules")")
  depmod -b "${modules%/lib/modules/*}" "$version"
  mkdir -p "$WORK/kernel"
  mv "$vmlinuz" "$WORK/kernel/vmlinuz"
  mv "$(dirname "$modules")" "$WORK/kernel/modules"
  mv "$WORK/packages" "$WORK/kernel/packages"
  echo "$version" >"$WORK/kernel/version"
}

fetch() {
  local packages
  WORK=$CACHE/kernels/.$SERIES.new
  APT_STATE=$CACHE/apt/$SERIES
  rm -rf "$WORK"
  mkdir -p "$WORK/debs" "$APT_STATE"
  refresh_lists
  packages=$(choose_packages)
  say "downloading" $packages
  # shellcheck disable=SC2086  # one word a package
  (cd "$WORK/debs" && private_apt apt-get download $packages >"$WORK/download.log" 2>&1) || {
    cat "$WORK/download.log" >&2
    die "the download of kernel series $SERIES failed"
  }
  unpack
  # Renamed when whole: an interrupted run leaves nothing that a later one would take for a kernel.
  rm -rf "$TARGET"
  mv "$WORK/kernel" "$TARGET"
  rm -rf "$WORK"
}

UPDATE=
while [ $# -gt 0 ]; do
  case $1 in
    --update) UPDATE=1 ;;
    -h | --help) usage; exit 0 ;;
    -*) usage_error "unknown option '$1'" ;;
    *) break ;;
  esac
  shift
done
[ $# -eq 1 ] || usage_error "usage: fetch-kernel.sh [--update] SERIES, one of $ALL_SERIES"
SERIES=$1
check_series "$SERIES"
need_tools apt-get apt-cache depmod dpkg dpkg-deb flock sha256sum

TARGET=$CACHE/kernels/$SERIES
lock_cache "kernel-$SERIES"
if [ -n "$UPDATE" ] || [ ! -e "$TARGET/version" ]; then
  fetch
  say "kernel $(cat "$TARGET/version") ($(head -n 1 "$TARGET/packages" | cut -d' ' -f1,2)) is ready"
fi
echo "$TARGET"
