#!/bin/sh
# Takes in the next piece of a wheel, in base64 on standard input, and says how long the file is then.
#
#   sh receive.sh WHEEL OFFSET
#
# What stands behind OFFSET came from a piece that was cut off. It is called WHEEL.part until it is
# whole: accept.sh gives it its name.
set -eu
umask 022
part=$1.part
mkdir -p -- "${1%/*}"
[ -f "$part" ] || : >"$part"
truncate -s "$2" -- "$part"
base64 -d >>"$part"
stat -c 'length %s' -- "$part"
