#!/bin/sh
# Finishes what an interrupted installation left: sets up what is unpacked, and unpacks again what
# was cut off in the middle of that.
#
#     finish.sh FOLDER MODULES
#
# FOLDER is where a folder of our own may be made, MODULES where DKMS keeps what it builds. What was
# cut off cannot be configured: dpkg(1), "half-installed" and "reinst-required". apt-get 2.6 takes it
# for installed where its version is the wanted one, and `apt-get -f install` would remove it. So its
# very archive is unpacked once more, which moves no other package; where it is on offer no longer, a
# transaction to another version may help.
set -u
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
modules=$2
set_up() { dpkg --force-confold --configure -a; }

# forgotten removes what DKMS had half built for a kernel when it was cut off, and tells whether there
# was any. Its `remove` passes over a kernel's folder without all modules in it, and so the package's
# `dkms add` fails each time: "You cannot add the same module/version combo more than once" (3.0.10,
# remove_module and is_module_built). `dkms status` calls that module added, not built.
forgotten() {
	any=1
	for made in "$modules"/*/*/[0-9]*/*; do
		kernel=${made%/*} tree=${made%/*/*}
		if [ -h "$made" ] || [ -h "$kernel" ] || [ ! -h "$tree/source" ]; then continue; fi
		name=${tree%/*}
		case $(dkms status -m "${name##*/}" -v "${tree##*/}" -k "${kernel##*/}" -a "${made##*/}") in
		*': built'* | *': installed'*) continue ;;
		esac
		echo "DKMS had half built ${tree#"$modules"/} for ${kernel##*/}: that is built anew"
		rm -rf -- "$made" && any=0
		rmdir -- "$kernel" 2>/dev/null
	done
	return $any
}

states='${db:Status-Abbrev}|${binary:Package}=${Version}\n'
cut_off=$(dpkg-query -W -f "$states" | sed -n 's/^[ih]\(H.\|.R\)|//p')
if [ "$cut_off" ]; then
	folder=$(mktemp -d "$1/pyinfra-gpu-apt.XXXXXX") && cd "$folder" || exit 1
	trap 'rm -rf "$folder"' EXIT
	for package in $cut_off; do
		apt-get -q download "$package" || echo "$package was cut off and cannot be fetched again" >&2
	done
	set -- *.deb
	[ ! -e "$1" ] || dpkg --force-confold --unpack "$@"
fi
set_up || { command -v dkms >/dev/null && forgotten && set_up; }
