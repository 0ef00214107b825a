#!/bin/sh
# Prints what the smoke test left; run as the user whose it is.
#
#   sh owner.sh MARK FOLDER
#
# MARK, and what an item is: see system.sh
set -u
mark=$1 folder=$2
for file in "$folder"/*.json "$folder"/*.log "$folder"/evidence*/*; do
	name=${file#"$folder"/}
	case $name in *[!A-Za-z0-9._/-]*) continue ;; esac
	[ -f "$file" ] || continue
	printf '\n%s item %s\n' "$mark" "$name"
	timeout -k 2 20 tail -c 131072 -- "$file"
	printf '\n%s status\n' "$mark"
done
