# Takes away what fill_disk.sh mounted.
set -eu
mountpoint -q /dev/.full || exit 0
umount -l /opt
umount -l /dev/.full
rmdir /dev/.full
