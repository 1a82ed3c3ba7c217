#!/usr/bin/env bash
# Builds a guest for a kernel series and prints the directory it is in: vmlinuz, initramfs, version.
# The initramfs has busybox, swap tools and nbd-client with their libraries, the kernel modules that
# devices and workloads need, our static programs, and the raw pages of the corpus.
# A guest that is up to date is left as it is.
# usage: build-image.sh [--update] SERIES
#   --update    ask the mirror for a newer kernel of the series
#   CSWAP_BUILD     build directory with the programs (build/release)
#   CSWAP_CORPUS    directory of *.pages.zst (tests/corpus)
set -euo pipefail
. "$(dirname "$0")/lib.sh"

CORPUS=${CSWAP_CORPUS:-$REPO/tests/corpus}

# Absent in some kernels, since they are built in or gone: only what is here is taken. modprobe
# resolves what each depends on, as a fixed list would break from one kernel to the next.
MODULES="virtio_pci virtio_blk virtio_console virtio_net nbd zram zsmalloc lz4 lz4hc zstd lzo-rle
         lzo"

# From the machine: busybox's own mkswap and swapon know less (page size, discard policies).
TOOLS="mkswap swapon swapoff blkid blkdiscard nbd-client"

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

find_tool() {
  command -v "$1" || die "missing: $1 (run tests/support/install.sh vm)"
}

# Every executable that the build put beside its CMake files is a program for guests.
list_programs() {
  find "$BUILD/vm-images" -maxdepth 1 -type f -executable 2>/dev/null | sort
}

# All that the image is made from; when its digest is the same, so is the image.
digest_of_inputs() {
  local tool
  {
    cat "$KERNEL/version" "$KERNEL/packages"
    sha256sum "$VM_IMAGES"/{build-image,lib}.sh "$VM_IMAGES"/guest/bin/* "${PROGRAMS[@]}" \
      "$CORPUS"/*.pages.zst
    for tool in busybox $TOOLS; do sha256sum "$(find_tool "$tool")"; done
  } | sha256sum | cut -d' ' -f1
}

copy_with_libraries() {
  local root=$1 file=$2 library
  install -D -m 755 "$file" "$root/usr/sbin/$(basename "$file")"
  { ldd "$file" 2>/dev/null || true; } | grep -oE '/[^ ]+' | while read -r library; do
    [ -e "$root$library" ] || install -D -m 755 "$library" "$root$library"
  done
}

copy_modules() {
  local root=$1 version=$2 module path
  local tree=$WORK/modules
  mkdir -p "$tree/lib/modules"
  ln -s "$KERNEL/modules" "$tree/lib/modules/$version"
  for module in $MODULES; do
    modprobe --show-depends -d "$tree" -S "$version" -C "$WORK" "$module" 2>/dev/null || true
  done | sed -n 's/^insmod //p' | sort -u | while read -r path; do
    path=lib/modules/$version/${path#*/lib/modules/"$version"/}
    mkdir -p "$root/$(dirname "$path")"
    # Unpacked here, once, and not by an emulated processor at every boot.
    case $path in
      *.xz) xz -dc "$tree/$path" >"$root/${path%.xz}" ;;
      *.zst) zstd -qdc "$tree/$path" >"$root/${path%.zst}" ;;
      *) cp "$tree/$path" "$root/$path" ;;
    esac
  done
  cp "$KERNEL"/modules/modules.{builtin,order} "$root/lib/modules/$version/"
  cp "$KERNEL"/modules/modules.builtin.modinfo "$root/lib/modules/$version/" 2>/dev/null || true
  depmod -b "$root" "$version"
}

build() {
  local root=$WORK/root tool file
  mkdir -p "$root"/{bin,dev,proc,sys,run,tmp,etc,corpus,usr/bin,usr/sbin}
  install -m 755 "$(find_tool busybox)" "$root/bin/busybox"
  for tool in $TOOLS; do copy_with_libraries "$root" "$(find_tool "$tool")"; done
  copy_modules "$root" "$(cat "$KERNEL/version")"
  install -m 755 "$VM_IMAGES/guest/bin/"* "$root/usr/bin/"
  ln -s usr/bin/init "$root/init"
  for file in "${PROGRAMS[@]}"; do strip -o "$root/usr/bin/$(basename "$file")" "$file"; done
  for file in "$CORPUS"/*.pages.zst; do
    zstd -qdf "$file" -o "$root/corpus/$(basename "$file" .zst)"
  done
  # Not compressed: reading it costs nothing here, unpacking it costs seconds there.
  (cd "$root" && find . -print0 | sort -z | cpio -0 -o -H newc -R 0:0 --quiet) >"$WORK/initramfs"
  rm -rf "$root" "$WORK/modules"
  cp "$KERNEL/vmlinuz" "$KERNEL/version" "$KERNEL/packages" "$WORK/"
  echo "$DIGEST" >"$WORK/digest"
}

UPDATE=()
while [ $# -gt 0 ]; do
  case $1 in
    --update) UPDATE=(--update) ;;
    -h | --help) usage; exit 0 ;;
    -*) usage_error "unknown option '$1'" ;;
    *) break ;;
  esac
  shift
done
[ $# -eq 1 ] || usage_error "usage: build-image.sh [--update] SERIES, one of $ALL_SERIES"
SERIES=$1
check_series "$SERIES"
need_tools busybox cpio depmod modprobe ldd strip xz zstd flock sha256sum

KERNEL=$("$VM_IMAGES/fetch-kernel.sh" "${UPDATE[@]}" "$SERIES")
IMAGE=$CACHE/images/$SERIES
lock_cache "image-$SERIES"
mapfile -t PROGRAMS < <(list_programs)
[ ${#PROGRAMS[@]} -gt 0 ] ||
  die "no programs for guests in $BUILD/vm-images: build first (cmake --build build/release)"
ls "$CORPUS"/*.pages.zst >/dev/null 2>&1 || die "no *.pages.zst in $CORPUS"
DIGEST=$(digest_of_inputs)
if [ "$(cat "$IMAGE/digest" 2>/dev/null)" != "$DIGEST" ]; then
  WORK=$CACHE/images/.$SERIES.new
  rm -rf "$WORK"
  mkdir -p "$WORK"
  build
  rm -rf "$IMAGE"
  mv "$WORK" "$IMAGE"
  say "guest for $(cat "$IMAGE/version"):" \
    "initramfs of $(($(stat -c %s "$IMAGE/initramfs") >> 20)) MiB"
fi
echo "$IMAGE"
