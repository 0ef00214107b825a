#!/bin/sh
# Renames a list of apt's that names nothing but one repository; apt passes over ".disabled" files.
#
#     set_aside.sh FOLDER FILE URL
#
# FOLDER is where such lists are; a FILE elsewhere is left alone.

file=$2 url=$3
case $file in
"$1"/*) ;;
*) echo "$file is not in $1: take $url out of it yourself"; exit 1 ;;
esac
if grep -E '^[[:space:]]*(deb|URIs:)' "$file" | grep -vF "$url" >/dev/null; then
	echo "$file names other repositories too: take $url out of it yourself"
	exit 1
fi
mv -f "$file" "$file.disabled"
