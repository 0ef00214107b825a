#!/bin/sh
# Notes every command line on this host that holds the canary, ten times a second, until it is ended.
#
#   sh watch_commands.sh FILE
while :; do
	grep -las 'can[4]ry' /proc/[0-9]*/cmdline >>"$1" # the pattern is not what it finds
	sleep 0.1
done
