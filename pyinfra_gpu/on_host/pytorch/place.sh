#!/bin/sh
# Makes the place for a virtual environment: an empty directory of the owner's.
#
#   sh place.sh FOLDER OWNER
#
# What stands there is left: another run may just have made it. FOLDER.new takes an empty place: a
# switch (switch.sh) was cut off between its two renames. It is judged as any environment is.
#
# OWNER    whose it is to be; empty: it belongs to whoever runs this
set -eu
umask 022
folder=$1 owner=$2
guarded "$owner" "${folder%/*}"
if [ -e "$folder" ] || [ -h "$folder" ]; then exit 0; fi
if [ -d "$folder.new" ]; then exec mv -T -- "$folder.new" "$folder"; fi
mkdir -- "$folder"
if [ "$owner" ]; then chown -h -- "$owner:" "$folder"; fi
