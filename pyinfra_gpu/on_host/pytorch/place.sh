#!/bin/sh
# Makes the place for a virtual environment: an empty directory of the owner's.
#
#   sh place.sh FOLDER BROKEN OWNER
#
# BROKEN   1: what stands at FOLDER is renamed FOLDER.broken, whose place the owner has emptied;
#          empty: what stands there is left, since another run may just have made it
# OWNER    whose it is to be; empty: it belongs to whoever runs this
set -eu
umask 022
folder=$1 broken=$2 owner=$3
if [ "$owner" ] && ! root_only "${folder%/*}"; then
	echo "somebody else than root can change $open" >&2
	exit 1
fi
if [ -e "$folder" ] || [ -h "$folder" ]; then
	if [ ! "$broken" ]; then exit 0; fi
	if [ -d "$folder.broken" ] && [ ! -h "$folder.broken" ]; then rmdir -- "$folder.broken"; fi
	mv -f -T -- "$folder" "$folder.broken"
fi
mkdir -- "$folder"
if [ "$owner" ]; then chown -h -- "$owner:" "$folder"; fi
