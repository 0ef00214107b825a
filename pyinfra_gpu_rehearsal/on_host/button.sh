# The power button of a throwaway host: boots it, and boots it again when it asked for a reboot.
#   sh button.sh FOLDER GROUP NAME CONNECT_GPUS RIGHTS...
# FOLDER        the host's folder, with own, base, bytecode, up, work and root in it
# GROUP         the control group of what is on while the host is
# CONNECT_GPUS  the program that shows the host its simulated hardware
# RIGHTS        the words that take rights away from the host's root

here=$(dirname "$0")
cd "$1" || exit 1
group=$2/machine
shift 2

# The kernel ends the first process of a process namespace with SIGHUP (129) when the machine
# asks for a reboot and with SIGINT (130) on power-off: reboot(2), "behavior inside PID namespaces".
while :; do
  find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
  mkdir -p "$group" && rm -f pid || exit 1
  # The machine's own clock starts at 0: who waits for a reboot may look at the uptime. Offsets
  # count from the kernel's own clock, from which ours may be off already.
  read -r up rest </proc/uptime; up=${up%.*}
  while read -r clock off rest; do
    case $clock in monotonic) up=$((up - off)) ;; esac
  done </proc/self/timens_offsets
  unshare --mount --uts --ipc --pid --time --boottime "-$up" --monotonic "-$up" \
    --fork --kill-child --propagation private sh "$here/boot.sh" "$group" "$@"
  [ $? = 129 ] || exit 0
done
