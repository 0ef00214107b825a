#!/bin/sh
# Removes the file PATH; a link itself, never what it leads to.
#
#   sh remove.sh PATH GUARDED
#
# GUARDED  1: refuse a folder that somebody else than root can change, or the way to it
set -u
if [ "$2" ] && ! root_only "${1%/*}"; then
	echo "somebody else than root can change $open" >&2
	exit 1
fi
rm -f -- "$1"
