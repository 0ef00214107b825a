#!/bin/sh
# Gives a wheel that was taken in its name, if it has its digest; other wheels beside it go.
#
#   sh accept.sh WHEEL SHA256
set -eu
case $(sha256sum <"$1.part") in
"$2 "*) ;;
*)
	rm -f -- "$1.part"
	echo "the wheel arrived with another digest than it was sent with: run again" >&2
	exit 1
	;;
esac
sync -- "$1.part"
rm -f -- "${1%/*}"/*.whl
mv -f -T -- "$1.part" "$1"
sync -- "${1%/*}"
