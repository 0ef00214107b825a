#!/bin/sh
# Puts FOLDER.new in the place of FOLDER, which is kept under another name.
#
#   sh switch.sh FOLDER KEPT OWNER
#
# KEPT     the name under which the old environment is kept
# OWNER    whose the environments are, in a directory of root's; empty: of whoever runs this
#
# Cut off between the two renames it is finished by place.sh. Old environments that their owner has
# emptied (kept.sh) are taken away.
set -eu
umask 022
folder=$1 kept=$2 owner=$3
guarded "$owner" "${folder%/*}"
if [ -e "$kept" ] || [ -h "$kept" ]; then
	echo "$kept is there already" >&2
	exit 1
fi
for old in "$folder".old-*; do
	if [ -d "$old" ] && [ ! -h "$old" ]; then rmdir --ignore-fail-on-non-empty -- "$old"; fi
done
mv -T -- "$folder" "$kept"
mv -T -- "$folder.new" "$folder"
sync -f "${folder%/*}"
