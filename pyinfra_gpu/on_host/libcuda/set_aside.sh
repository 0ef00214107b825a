#!/bin/sh
# Renames libraries, and has the linker's cache made from what is left. A package's own link stays.
#
#     set_aside.sh PATH...
#
# ldconfig takes up whatever is named lib*.so*, and leads a library's own name to the newest one.
set -u
for path do
	if [ -h "$path" ] && dpkg-query -S "$path" >/dev/null 2>&1; then continue; fi
	kept=${path%/*}/before-pyinfra-gpu.${path##*/}.$(date +%Y%m%dT%H%M%S)
	mv -T -- "$path" "$kept" || exit 1
	echo "$path is kept as $kept"
done
ldconfig
