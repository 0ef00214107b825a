# Takes away what fill_disk.sh mounted.
set -eu
umount -l /opt
umount -l /dev/.full
rmdir /dev/.full
