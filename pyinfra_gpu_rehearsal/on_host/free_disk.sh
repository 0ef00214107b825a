# Takes away what fill_disk.sh or fill_disk_in_memory.sh mounted.
#   sh free_disk.sh
set -eu
umount -l /opt
umount -l /dev/.full
rmdir /dev/.full
