#!/bin/sh
# Puts the wheel that comes on standard input into FOLDER, whole and with its digest or not at all,
# unless it is there; other versions of it go.
#
#   sh accept.sh FOLDER NAME SHA256
set -eu
umask 022
folder=$1 name=$2 digest=$3
is() {
	case $(sha256sum <"$1" 2>/dev/null) in "$digest "*) ;; *) return 1 ;; esac
}
if [ -e "$folder/$name" ] && is "$folder/$name"; then exit 0; fi
mkdir -p -- "$folder"
cat >"$folder/.part"
if ! is "$folder/.part"; then
	rm -f -- "$folder/.part"
	echo "the wheel arrived with another digest than it was sent with" >&2
	exit 1
fi
sync -- "$folder/.part"
rm -f -- "$folder/${name%%-*}"-*.whl
mv -f -T -- "$folder/.part" "$folder/$name"
sync -- "$folder"
