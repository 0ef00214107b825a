#!/bin/sh
# Brings the blacklist into the initramfs of every kernel.
#
#     initramfs.sh FOLDER
#
# FOLDER holds modprobe's rules. What the initramfs has is told by its age, and a file that is dated
# in the future, by a clock that was wrong once, stays newer for ever: it is given today's date.
set -u
find "$1" -maxdepth 1 -type f -name '*.conf' -newermt now -exec touch -c -- {} + -print |
	sed 's/$/ was dated in the future/'
update-initramfs -u -k all
