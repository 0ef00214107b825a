#!/bin/sh
# Prints "PACKAGE: PATH", as dpkg-query -S does, for what packages brought to a folder and is gone.
#
#     missing_files.sh FOLDER

dpkg-query -S "$1/*" 2>/dev/null | while IFS= read -r line; do
	path=${line#*: }
	[ -e "$path" ] || [ -L "$path" ] || printf '%s\n' "$line"
done
