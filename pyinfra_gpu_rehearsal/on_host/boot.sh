# The first process of a throwaway host: mounts what a machine has, and becomes systemd.
#   sh boot.sh GROUP NAME CONNECT_GPUS RIGHTS...        in the host's folder; see button.sh
set -eu
here=$(dirname "$0")
echo 0 >"$1/cgroup.procs"
# This shell becomes the machine's first process; /proc is still the one of outside.
read -r pid rest </proc/self/stat
echo "$pid" >pid
# A volatile overlay refuses to be mounted again after a power cut; what was written is all there,
# because it is the kernel of this machine that holds it.
rm -rf work/work/incompat
# By redirect_dir a folder of a lower layer is renamed, as on a machine, and not copied.
# `lower` names the layers of the snapshot that the host was restored from, each with a colon.
layers=$(cat lower 2>/dev/null || :)own:base
mount -t overlay overlay -o "lowerdir=$layers,upperdir=up,workdir=work,volatile,redirect_dir=on" root
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
mkdir -p run/rehearsal-bytecode
mount --bind ../bytecode run/rehearsal-bytecode  # see rehearsal_bytecode.py
# A host that was restored from a snapshot goes on with the boot in which that was taken.
if [ -e ../boot_id ]; then
  mv ../boot_id run/boot_id
else
  cat /proc/sys/kernel/random/uuid >run/boot_id
fi
mount --bind run/boot_id proc/sys/kernel/random/boot_id
sh "$3"
shift 3
exec unshare --cgroup sh "$here/enter_root.sh" "$@"
