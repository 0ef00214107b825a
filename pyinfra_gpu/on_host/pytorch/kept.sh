#!/bin/sh
# Empties all but the newest of the old virtual environments, by their names, which hold the time.
#
#   sh kept.sh FOLDER KEEP
#
# KEEP     how many are left as they are; one that somebody else may not look at, or that is none
#          of ours, counts as one of them
#
# What its owner may not delete stays, and is said; it is no reason to keep a broken environment.
set -eu
folder=$1 keep=$2
emptied() {
	find "$1" -type d ! -perm -700 -exec chmod u+rwx {} \; 2>/dev/null || :
	find "$1" -mindepth 1 -delete 2>/dev/null ||
		echo "$1 holds files of another user's, which stay; as root: rm -r -- '$1'"
}

set -- "$folder".old-[0-9]*
while [ $# -gt "$keep" ]; do
	if [ -d "$1" ] && [ ! -h "$1" ]; then emptied "$1"; fi
	shift
done
