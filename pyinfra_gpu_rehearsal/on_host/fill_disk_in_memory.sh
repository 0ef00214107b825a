# As fill_disk.sh, where no real disk can be had: a memory file system without space or inodes.
#   sh fill_disk_in_memory.sh
set -eu
mkdir /dev/.full
mount -t tmpfs -o size=1m,nr_inodes=64 full /dev/.full
mkdir /dev/.full/up /dev/.full/work
options=userxattr,lowerdir=/opt,upperdir=/dev/.full/up,workdir=/dev/.full/work
mount -t overlay overlay -o "$options" /opt
dd if=/dev/zero of=/dev/.full/fill bs=1k 2>/dev/null || :
n=0; while true >"/dev/.full/fill.$n"; do n=$((n + 1)); done 2>/dev/null
