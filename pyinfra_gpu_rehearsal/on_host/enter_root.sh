# The last step of a boot, in the machine's own namespace of control groups and in its root folder.
#   sh enter_root.sh RIGHTS...                           see button.sh
# The old root is stacked on the new one and detached, which pivot_root(2) allows with "." for both.
set -eu
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup
exec </dev/null
pivot_root . .
umount -l .
cd /
exec env -i container=rehearsal PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  "$@" /lib/systemd/systemd
