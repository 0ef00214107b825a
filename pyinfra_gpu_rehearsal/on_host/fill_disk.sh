# Puts a full file system under /opt of a host, as the upper layer of an overlay: what is in /opt
# stays there to be read. It is in memory, and gone with the host's power.
set -eu
mountpoint -q /dev/.full && exit
mkdir /dev/.full
mount -t tmpfs -o size=1m,mode=0755 full /dev/.full
mkdir /dev/.full/up /dev/.full/work
mount -t overlay overlay -o lowerdir=/opt,upperdir=/dev/.full/up,workdir=/dev/.full/work /opt
dd if=/dev/zero of=/dev/.full/fill bs=4k 2>/dev/null || :
