#!/bin/sh
# Finishes what an interrupted installation left: sets up what is unpacked, and unpacks again what
# was cut off in the middle of that.
#
#     finish.sh FOLDER
#
# FOLDER is where a folder of our own may be made. What was cut off cannot be configured: dpkg(1),
# "half-installed" and "reinst-required". apt-get 2.6 takes it for installed where its version is
# the wanted one, and `apt-get -f install` would remove it. So its very archive is unpacked once
# more, which moves no other package; where it is on offer no longer, a transaction to another
# version may help.
set -u
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
configured() { dpkg --force-confold --configure -a; }

cut_off=$(dpkg-query -W -f '${db:Status-Abbrev}|${binary:Package}=${Version}\n' |
	sed -n 's/^[ih]\(H.\|.R\)|//p')
[ "$cut_off" ] || { configured; exit; }
folder=$(mktemp -d "$1/pyinfra-gpu-apt.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
cd "$folder" || exit 1
for package in $cut_off; do
	apt-get -q download "$package" || echo "$package was cut off and cannot be fetched again" >&2
done
set -- *.deb
[ ! -e "$1" ] || dpkg --force-confold --unpack "$@"
configured
