"""The machine itself: shell programs that boot systemd in namespaces of its own.

Both run under `sh` with values as words, never pasted into the text. BUTTON is the machine's
power button: it boots the machine, and boots it again when it asked for a reboot. BOOT is the
first process of the machine; it becomes systemd.
"""

from __future__ import annotations

from pathlib import Path

from pyinfra_gpu_rehearsal.nvidia.hardware import CONNECT
from pyinfra_gpu_rehearsal.placing import is_root

# A host's root may do all that stays within the host, but not touch the real kernel or disks.
_TAKEN = "-sys_module,-sys_rawio,-sys_time,-mknod"
FEWER_RIGHTS = ("setpriv", f"--bounding-set={_TAKEN}", f"--inh-caps={_TAKEN}")

# $1: the host's control group; $2: its name; $3: the text of BOOT; then the words that take away
# rights. Runs in the host's folder.
# The kernel ends the first process of a process namespace with SIGHUP (129) when the machine
# asks for a reboot and with SIGINT (130) on power-off: reboot(2), "behavior inside PID namespaces".
BUTTON = r"""
group=$1/machine name=$2 boot=$3; shift 3
while :; do
  find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
  mkdir -p "$group" || exit 1
  # The machine's own clock starts at 0: who waits for a reboot may look at the uptime. Offsets
  # count from the kernel's own clock, from which ours may be off already.
  read -r up rest </proc/uptime; up=${up%.*}
  while read -r clock off rest; do
    case $clock in monotonic) up=$((up - off)) ;; esac
  done </proc/self/timens_offsets
  unshare --mount --uts --ipc --pid --time --boottime "-$up" --monotonic "-$up" \
    --fork --kill-child --propagation private sh -c "$boot" boot "$group" "$name" "$@"
  [ $? = 129 ] || exit 0
done
"""

# $1: the control group of the machine; $2: its name; then the words that take away rights. Runs
# in the host's folder.
BOOT = (
    r"""
set -eu
echo 0 >"$1/cgroup.procs"
# A volatile overlay refuses to be mounted again after a power cut; what was written is all there,
# because it is the kernel of this machine that holds it.
rm -rf work/work/incompat
mount -t overlay overlay -o "lowerdir=own:base,upperdir=up,workdir=work,volatile$OVERLAY" root
hostname "$2"
cd root
mount -t proc -o nosuid,nodev,noexec proc proc
# Kernel settings outside the network are those of the real machine: not this one's to change.
mount --bind proc/sys proc/sys
mount --bind proc/sys/net proc/sys/net
mount -o remount,bind,ro,nosuid,nodev,noexec proc/sys
if [ -e proc/sysrq-trigger ]; then
  mount --bind proc/sysrq-trigger proc/sysrq-trigger
  mount -o remount,bind,ro proc/sysrq-trigger
fi
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
mount -t tmpfs -o mode=0755,nosuid,noexec,size=4m dev dev
for node in null zero full random urandom tty; do
  : >"dev/$node"; mount --bind "/dev/$node" "dev/$node"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777,nosuid,nodev shm dev/shm
ln -s pts/ptmx dev/ptmx; ln -s /proc/self/fd dev/fd; ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout; ln -s fd/2 dev/stderr
mount -t tmpfs -o mode=0755,nosuid,nodev run run
mount -t tmpfs -o mode=1777,nosuid,nodev tmp tmp
cat /proc/sys/kernel/random/uuid >run/boot_id
mount --bind run/boot_id proc/sys/kernel/random/boot_id
"""
    + CONNECT
    + r"""
shift 2
exec unshare --cgroup sh -c "$BOOT_LAST" boot "$@"
"""
)

# In the machine's own control group namespace. The old root is stacked on the new one and
# detached, which pivot_root(2) allows with "." for both.
BOOT_LAST = r"""
set -eu
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup
exec </dev/null
pivot_root . .
umount -l .
cd /
exec env -i container=rehearsal PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  "$@" /lib/systemd/systemd
"""


def overlay_option() -> str:
    """Return the option an overlay needs without root: its notes in attributes a user may write."""
    return "" if is_root() else ",userxattr"


def button_command(folder: Path, group: Path, name: str) -> list[str]:
    """Return the command of the power button of host NAME.

    + folder: the host's folder, with own, base, up, work and root in it.
    + group: the control group of what is on while the host is.
    """
    enter = 'cd "$1" && shift && exec sh -c "$0" button "$@"'
    words = ["sh", "-c", enter, BUTTON, str(folder), str(group), name, BOOT, *FEWER_RIGHTS]
    return ["env", f"BOOT_LAST={BOOT_LAST}", f"OVERLAY={overlay_option()}", *words]
