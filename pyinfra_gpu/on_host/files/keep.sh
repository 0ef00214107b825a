#!/bin/sh
# Sets aside what stands at PATH, unless it is a file of ours, which its header says.
#
#   sh keep.sh PATH OWNER HEADER
#
# OWNER   as whom the file is read, since it may be that user's; with one, this is root, and refuses
#         a folder that somebody else can change, or the way to it
# HEADER  the line that each file of ours has
set -u
path=$1 owner=$2 header=$3
guarded "$owner" "${path%/*}"
as_owner=
if [ "$owner" ]; then as_owner="runuser -u $owner --"; fi
if [ -f "$path" ] && [ ! -h "$path" ] && $as_owner head -c 65536 -- "$path" | grep -qxF "$header"; then
	exit 0
fi
set_aside "$path" && echo "pyinfra-gpu-note: what stood at $path is kept as $aside"
