#!/bin/sh
# Empties all but the newest of the old virtual environments, by their names, which hold the time.
#
#   sh kept.sh FOLDER KEEP
#
# KEEP     how many are left as they are; one that somebody else may not look at, or that is none
#          of ours, counts as one of them
set -eu
folder=$1 keep=$2
set -- "$folder".old-[0-9]*
while [ $# -gt "$keep" ]; do
	if [ -d "$1" ] && [ ! -h "$1" ]; then find "$1" -mindepth 1 -delete; fi
	shift
done
