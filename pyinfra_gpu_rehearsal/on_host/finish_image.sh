# Makes a base image of a tree into which its packages were installed; mmdebstrap runs it.
#   sh finish_image.sh TREE MASKED PACKAGE...
# MASKED    units that are masked, in one word
# PACKAGE   packages to download
set -eu
here=$(dirname "$0") root=$1 masked=$2
shift 2
rm -f "$root"/var/cache/apt/archives/*.deb
APT_CONFIG=$MMDEBSTRAP_APT_CONFIG \
  apt-get --yes --no-install-recommends --download-only install "$@" >/dev/null
mkdir "$root/installable"
mv "$root"/var/cache/apt/archives/*.deb "$root/installable/"
for folder in "$root"/usr/lib/python3.*/; do
  rm -f "${folder}sitecustomize.py"  # the distribution's, a link
  install -m 0644 "$here/sitecustomize.py" "$here/rehearsal_bytecode.py" "$folder"
done
chroot "$root" useradd --create-home --uid 1000 --shell /bin/bash ubuntu
echo 'ubuntu ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/ubuntu"
chmod 0440 "$root/etc/sudoers.d/ubuntu"
printf 'LogLevel VERBOSE\nPasswordAuthentication no\nUseDNS no\n' \
  >"$root/etc/ssh/sshd_config.d/rehearsal.conf"
mkdir -p "$root/etc/systemd/journald.conf.d"
printf '[Journal]\nStorage=volatile\n' >"$root/etc/systemd/journald.conf.d/rehearsal.conf"
for unit in $masked; do ln -sf /dev/null "$root/etc/systemd/system/$unit"; done
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/hostname" "$root/etc/resolv.conf"
rm -f "$root/etc/apt/sources.list" "$root"/etc/apt/sources.list.d/*
rm -f "$root/etc/apt/apt.conf.d/99mmdebstrap"
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/log/journal
: >"$root/etc/machine-id"
: >"$root/etc/resolv.conf"
rm -f "$root/var/lib/dbus/machine-id"
