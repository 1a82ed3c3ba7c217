# The parts of run-guest.sh, in the order in which it uses them; sourced, never run.

QEMU_PID=
NBDKIT_PID=
STATS_SOCKET=
GUEST_PROBLEM=

# False for a zombie too: in a trap the shell has not collected its children yet.
alive() {
  local stat
  [ -n "$1" ] && read -r stat 2>/dev/null <"/proc/$1/stat" && [[ ${stat##*) } != [ZX]* ]]
}

nap() { read -rt "$1" <> <(:) || true; }

# end_process PID: asks it to end, and after 10 s makes it. Returns its status, 137 when it had to.
end_process() {
  local tries=0 status=0
  kill "$1" 2>/dev/null || true
  while alive "$1" && [ $tries -lt 200 ]; do
    tries=$((tries + 1))
    nap 0.05
  done
  kill -KILL "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || status=$?
  return $status
}

# When this script is killed outright, setpriv lets the kernel end QEMU with its parent, and nbdkit
# does the same by itself.
cleanup() {
  trap - EXIT
  trap '' INT TERM HUP
  if [ -n "$QEMU_PID" ]; then end_process "$QEMU_PID" || true; fi
  if [ -n "$NBDKIT_PID" ]; then end_process "$NBDKIT_PID" || true; fi
  rm -rf "$RUN"
}

start_server() {
  local attempt
  URI=
  NBD_PORT=
  case $DEVICE in zram | none) return ;; esac
  local plugin_args=("$PLUGIN" "${SERVER_ARGS[@]}" "size=$SIZE")
  if nbdkit --dump-plugin "$PLUGIN" 2>/dev/null | grep -qx name=cswap; then
    STATS_SOCKET=$RUN/stats.sock
    plugin_args+=("stats=unix:$STATS_SOCKET")
  fi
  if [ "$DEVICE" = nbd ]; then
    # nbd.ko comes through QEMU's network, so the server listens on a port of the loopback.
    for attempt in 1 2 3 4 5 6 7 8; do
      NBD_PORT=$((20000 + RANDOM % 10000))
      URI=nbd://localhost:$NBD_PORT
      launch_server -i 127.0.0.1 -p "$NBD_PORT" "${plugin_args[@]}" && return
      grep -q 'in use' "$OUT/nbdkit.log" || break
    done
  else
    URI="nbd+unix:///?socket=$RUN/nbd.sock"
    launch_server -U "$RUN/nbd.sock" "${plugin_args[@]}" && return
  fi
  cat "$OUT/nbdkit.log" >&2
  die "nbdkit did not start"
}

launch_server() {
  rm -f "$RUN/nbdkit.pid"
  nbdkit -f --exit-with-parent -P "$RUN/nbdkit.pid" "$@" >"$OUT/nbdkit.log" 2>&1 </dev/null &
  NBDKIT_PID=$!
  # nbdkit writes its pid when it can be connected to.
  until [ -s "$RUN/nbdkit.pid" ]; do
    if ! alive "$NBDKIT_PID"; then
      wait "$NBDKIT_PID" || true
      NBDKIT_PID=
      return 1
    fi
    [ $SECONDS -lt $DEADLINE ] || die "nbdkit is not ready after $TIMEOUT s"
    nap 0.05
  done
}

# A device node alone says little: where KVM is not complete, QEMU dies while it makes its CPUs.
kvm_works() {
  local quit='{"execute":"qmp_capabilities"} {"execute":"quit"}'
  [ -w /dev/kvm ] || return 1
  (timeout 5 qemu-system-x86_64 -M q35 -nodefaults -display none -accel kvm -cpu host -S \
    -qmp stdio <<<"$quit") >/dev/null 2>&1
}

# A script goes into the guest in an archive of its own after the image's.
make_initrd() {
  INITRD=$IMAGE/initramfs
  [ -n "$SCRIPT" ] || return 0
  mkdir -p "$RUN/extra/usr/bin"
  install -m 755 "$SCRIPT" "$RUN/extra/usr/bin/host-script"
  INITRD=$RUN/initrd
  cp "$IMAGE/initramfs" "$INITRD"
  (cd "$RUN/extra" && find . | cpio -o -H newc -R 0:0 --quiet) >>"$INITRD"
  WORKLOAD=(host-script "${WORKLOAD[@]}")
}

start_guest() {
  local args=(-M q35 -nodefaults -no-user-config -display none -no-reboot -m "$MEM" -smp "$CPUS")
  ACCEL=${CSWAP_ACCEL:-$(kvm_works 2>/dev/null && echo kvm || echo tcg)}
  if [ "$ACCEL" = kvm ]; then
    args+=(-accel kvm -cpu host)
  else
    # Without cx16: Debian's 6.12 dies at once in an emulated cmpxchg16b.
    args+=(-accel tcg,thread=multi -cpu max,-cx16)
  fi
  make_initrd
  # ramfs, since a root in tmpfs would itself be swapped out and count in every figure.
  mkfifo "$RUN/port.in" "$RUN/port.out"
  args+=(-kernel "$IMAGE/vmlinuz" -initrd "$INITRD"
    -append "console=ttyS0 panic=-1 rootfstype=ramfs cswap.device=$DEVICE cswap.timeout=$TIMEOUT \
${NBD_PORT:+cswap.nbd_port=$NBD_PORT} ${GUEST_ARGS[*]} -- ${WORKLOAD[*]}"
    -serial "file:$OUT/console.log"
    -chardev "pipe,id=result,path=$RUN/port"
    -device virtio-serial-pci -device virtserialport,chardev=result,name=org.cswap.result)
  case $DEVICE in
    # Without werror=report QEMU stops the whole guest when the pool is full (ENOSPC).
    virtio-blk)
      args+=(-drive "file=$URI,format=raw,if=virtio,discard=unmap,werror=report,rerror=report") ;;
    nbd) args+=(-netdev user,id=net -device virtio-net-pci,netdev=net,romfile=) ;;
  esac
  : >"$OUT/console.log"
  setpriv --pdeathsig KILL qemu-system-x86_64 "${args[@]}" >"$OUT/qemu.log" 2>&1 </dev/null &
  QEMU_PID=$!
  exec {PORT_OUT}<>"$RUN/port.out" {PORT_IN}<>"$RUN/port.in"
}

stats() { curl -sS --max-time 10 --unix-socket "$STATS_SOCKET" http://localhost/stats.json; }

# What the kernel frees it discards in the background: waits until the pool has stopped shrinking.
settle() {
  local last=-1 now same=0 tries=0
  while [ $same -lt 5 ] && [ $tries -lt 60 ]; do
    now=$(stats | jq '[.tenants[].stored_pages] | add')
    if [ "$now" = "$last" ]; then same=$((same + 1)); else same=0; fi
    last=$now
    tries=$((tries + 1))
    nap 0.2
  done
}

at_sync() {
  local name=$1
  if [ -n "$STATS_SOCKET" ]; then
    [ "$name" != exited ] || settle
    stats >"$OUT/stats-$name.json" || GUEST_PROBLEM="no statistics at '$name'"
  fi
  if [ -n "${AT[$name]:-}" ]; then
    CSWAP_URI=$URI CSWAP_OUT=$OUT CSWAP_STATS=$STATS_SOCKET bash -c "${AT[$name]}" >&2 ||
      GUEST_PROBLEM="the command at '$name' failed"
  fi
  echo go >&"$PORT_IN"
}

show() {
  [ -z "$QUIET" ] || return 0
  if [ -t 2 ] && [ "${2:-}" = transient ]; then
    printf '\r\033[K    %s' "$1" >&2
  elif [ -t 2 ]; then
    printf '\r\033[K    %s\n' "$1" >&2
  else
    echo "    $1" >&2
  fi
}

show_progress() {
  local line pool=
  line=$(jq -r '"swap used \(.swap_used_kb / 1024 | floor) MiB, " +
    "out \(.pswpout) in \(.pswpin) pages"' <<<"$1")
  if [ -n "$STATS_SOCKET" ]; then
    pool=$(stats 2>/dev/null | jq -r '"; pool: \([.tenants[].stored_pages] | add) pages in " +
      "\(.pool.mem_used_total / 1048576 | floor) MiB"' 2>/dev/null) || true
  fi
  show "$((SECONDS - STARTED)) s: $line$pool" transient
}

handle_event() {
  local event=$1 kind
  kind=$(jq -r '.event // empty' <<<"$event" 2>/dev/null) || return 0
  echo "$event" >>"$OUT/events.jsonl"
  case $kind in
    boot) show "$(jq -r '"kernel \(.kernel), \(.mem_kb / 1024 | floor) MiB, " +
      "up after \(.uptime_s) s"' <<<"$event")" ;;
    swap) show "$(jq -r '"swap on \(.device): \(.kernel)"' <<<"$event")" ;;
    progress) show_progress "$event" ;;
    check) show "$(jq -r '(if .ok then "ok      " else "FAILED  " end) + .name + "  " + .detail' \
      <<<"$event")" ;;
    line) show "$(jq -r .text <<<"$event")" ;;
    sync) at_sync "$(jq -r .name <<<"$event")" ;;
    failed) GUEST_PROBLEM="the guest: $(jq -r .reason <<<"$event")" ;;
    result) echo "$event" >"$OUT/guest.json" ;;
  esac
}

# Until QEMU has ended and all it wrote is read.
follow_guest() {
  local line partial= ended= status
  : >"$OUT/events.jsonl"
  rm -f "$OUT/guest.json"
  while :; do
    alive "$QEMU_PID" || ended=1
    status=0
    IFS= read -rt 0.5 -u "$PORT_OUT" line || status=$?
    partial+=$line
    if [ $status -eq 0 ]; then
      handle_event "$partial"
      partial=
    elif [ -n "$ended" ]; then
      break
    fi
    if [ $SECONDS -ge $DEADLINE ]; then
      GUEST_PROBLEM="no end after $TIMEOUT s"
      break
    fi
  done
}

# QEMU has ended by itself, or is out of time. A server that crashes, or that does not end when it
# is asked to, is a fault to report.
stop_all() {
  local status=0
  if alive "$QEMU_PID"; then
    end_process "$QEMU_PID" || true
  else
    wait "$QEMU_PID" 2>/dev/null || status=$?
  fi
  QEMU_PID=
  if [ $status -ne 0 ] && [ -z "$GUEST_PROBLEM" ]; then
    GUEST_PROBLEM="QEMU ended with $status: $(tail -n 1 "$OUT/qemu.log")"
  fi
  [ -n "$NBDKIT_PID" ] || return 0
  status=0
  end_process "$NBDKIT_PID" || status=$?
  NBDKIT_PID=
  [ $status -eq 0 ] || GUEST_PROBLEM=${GUEST_PROBLEM:-"nbdkit ended with $status"}
}

# Lines that a guest's kernel must not print, whatever the workload.
KERNEL_PROBLEMS='Write-error on swap|Read-error on swap|I/O error|blocked for more than|BUG:|Oops'
KERNEL_PROBLEMS+='|WARNING:|Kernel panic|general protection|Call Trace|soft lockup|rcu.*stall'
KERNEL_PROBLEMS+='|Unable to handle|Bad page|Bad swap|Unused swap offset|Out of memory'
KERNEL_PROBLEMS+='|page allocation failure|Connection timed out|Receive control failed'

kernel_problems() {
  tr -d '\r' <"$OUT/console.log" | grep -E "$KERNEL_PROBLEMS" | head -n 20 || true
}

make_result() {
  local stats_json='{}' file
  for file in "$OUT"/stats-*.json; do
    [ -s "$file" ] || continue
    stats_json=$(jq -c --arg name "$(basename "${file#*stats-}" .json)" \
      --slurpfile value "$file" '. + {($name): $value[0]}' <<<"$stats_json")
  done
  [ -s "$OUT/guest.json" ] || {
    echo '{"status":null}' >"$OUT/guest.json"
    GUEST_PROBLEM=${GUEST_PROBLEM:-the guest ended without a result}
  }
  jq -c --arg problem "$GUEST_PROBLEM" --argjson stats "$stats_json" \
    --arg log "$(kernel_problems)" --arg packages "$(cat "$IMAGE/packages")" \
    --arg accel "$ACCEL" --argjson seconds $((SECONDS - STARTED)) \
    --slurpfile events "$OUT/events.jsonl" '
    del(.event) + {
      boot: ([$events[] | select(.event == "boot") | del(.event)] | first),
      swap: [$events[] | select(.event == "swap") | del(.event)],
      zram_mm_stat: ([$events[] | select(.event == "sync" and .zram_mm_stat != "") |
                      {(.name): .zram_mm_stat}] | add),
      checks: [$events[] | select(.event == "check") | del(.event)],
      kernel_log: ($log | split("\n") | map(select(. != ""))),
      kernel_packages: ($packages | split("\n")),
      accel: $accel, seconds: $seconds, stats: $stats,
      problem: (if $problem == "" then null else $problem end)}' \
    "$OUT/guest.json" >"$OUT/result.json"
  cat "$OUT/result.json"
  if [ -n "$GUEST_PROBLEM" ] && [ -z "$QUIET" ]; then
    say "problem: $GUEST_PROBLEM"
    tail -n 15 "$OUT/console.log" >&2
  fi
  jq -e '.status == 0 and .problem == null and .kernel_log == []' "$OUT/result.json" >/dev/null
}
