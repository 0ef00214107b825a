#!/bin/sh
# As root, when swap.py has ended: what it left is put back, or removed.
#
#     sh swap_back.sh FOLDER
#
# Its user can exchange nothing any more in a folder that was given to root in the middle of a swap:
# the link stays where the file or folder was, and that under the link's name. Where a deploy made
# one anew meanwhile, the owner's is too much.
set -eu
cd "$1"
find . -name '*.link-*' -prune | while read -r left; do
	place=${left%.link-*}
	if [ -L "$place" ] && [ ! -L "$left" ]; then
		rm "$place"
		mv "$left" "$place"
	else
		rm -rf "$left"
	fi
done
