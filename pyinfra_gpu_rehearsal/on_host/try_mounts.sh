# Tries what a host's boot mounts, in namespaces that are gone at once.
set -eu
mount -t sysfs -o ro sysfs /sys
mount -t tmpfs try /tmp
cd /tmp
mkdir low up work root
mount -t overlay overlay -o "lowerdir=low,upperdir=up,workdir=work,volatile,redirect_dir=on" root
