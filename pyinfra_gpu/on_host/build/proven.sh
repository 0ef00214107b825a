#!/bin/sh
# Whether a wheel is still the one that was proven, as its manifest says.
#
#   sh proven.sh WHEEL SHA256 MANIFEST
#
# Where it is not, the manifest goes: the next run makes the wheel again from what is compiled.
set -u
case $(sha256sum <"$1") in "$2 "*) exit 0 ;; esac
rm -f -- "$3"
echo "the built wheel $1 was damaged since it was proven: run again, and it is made again" >&2
exit 1
