#!/bin/sh
# Puts the wheel that comes on standard input into FOLDER, whole and with its digest or not at all;
# other wheels there go.
#
#   sh accept.sh FOLDER NAME SHA256
set -eu
umask 022
folder=$1 name=$2 digest=$3
mkdir -p -- "$folder"
cat >"$folder/.part"
case $(sha256sum <"$folder/.part") in
"$digest "*) ;;
*)
	rm -f -- "$folder/.part"
	echo "the wheel arrived with another digest than it was sent with" >&2
	exit 1
	;;
esac
sync -- "$folder/.part"
rm -f -- "$folder"/*.whl
mv -f -T -- "$folder/.part" "$folder/$name"
sync -- "$folder"
