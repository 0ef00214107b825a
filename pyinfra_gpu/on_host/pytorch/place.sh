#!/bin/sh
# Makes the place for a virtual environment: an empty directory of the owner's.
#
#   sh place.sh FOLDER OWNER
#
# What stands there is left: another run may just have made it. Where a switch (switch.sh) was cut
# off between its two steps, it is finished instead.
#
# OWNER    whose it is to be; empty: it belongs to whoever runs this
set -eu
umask 022
folder=$1 owner=$2
if [ "$owner" ] && ! root_only "${folder%/*}"; then
	echo "somebody else than root can change $open" >&2
	exit 1
fi
if [ -e "$folder" ] || [ -h "$folder" ]; then exit 0; fi
if [ -e "$folder.switching" ]; then
	if [ -d "$folder.new" ]; then mv -T -- "$folder.new" "$folder"; fi
	rm -f -- "$folder.switching"
	if [ -e "$folder" ]; then exit 0; fi
fi
mkdir -- "$folder"
if [ "$owner" ]; then chown -h -- "$owner:" "$folder"; fi
