# Puts a full file system under /opt of a host, as the upper layer of an overlay: what is in /opt
# stays there to be read.
#   sh fill_disk.sh MAJOR MINOR            the numbers of the loop device that is to be full
set -eu
mkdir /dev/.full
mknod /dev/.full.disk b "$1" "$2"
mount /dev/.full.disk /dev/.full
rm /dev/.full.disk
mkdir /dev/.full/up /dev/.full/work
mount -t overlay overlay -o lowerdir=/opt,upperdir=/dev/.full/up,workdir=/dev/.full/work /opt
for size in 1M 4k 1k; do dd if=/dev/zero of=/dev/.full/fill.$size bs=$size 2>/dev/null || :; done
