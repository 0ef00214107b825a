#!/bin/sh
# Puts FOLDER.new in the place of FOLDER, which is kept as FOLDER.old.
#
#   sh switch.sh FOLDER OWNER
#
# OWNER    whose the environments are, in a directory of root's; empty: of whoever runs this
#
# FOLDER.old was emptied by its owner; where somebody else's files are left in it it gets a number
# behind its name. Cut off between the two renames it is finished by place.sh.
set -eu
umask 022
folder=$1 owner=$2
guarded "$owner" "${folder%/*}"
rmdir -- "$folder.old" 2>/dev/null || :
mv -T --backup=numbered -- "$folder" "$folder.old"
mv -T -- "$folder.new" "$folder"
sync -f "${folder%/*}"
