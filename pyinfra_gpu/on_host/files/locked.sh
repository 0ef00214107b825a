#!/bin/sh
# Runs COMMAND while it holds LOCK, for which it waits up to SECONDS.
#
#   sh locked.sh LOCK SECONDS GUARD COMMAND
#
# GUARD  1: refuse a LOCK that somebody else than root can exchange for a link, since to open it would
#        be to make a file wherever that link leads; empty for who works in a tree of their own
#
# Where LOCK is not had in time the last line says who has it, and the exit code is 75. Whoever can
# read LOCK can lock it, so one that is made here is closed to others.
set -u
lock=$1 seconds=$2
if [ "$3" ]; then guarded 1 "${lock%/*}"; fi

if ! command -v flock >/dev/null; then echo "flock is not on this host" >&2; exit 1; fi
if [ ! -e "$lock" ]; then (umask 077 && set -C && : >"$lock") || exit 1; fi
exec 9<"$lock" || exit 1
if ! flock -w "$seconds" 9; then
	holder=$(lslocks -nro INODE,PID,COMMAND 2>/dev/null | sed -n "s/^$(stat -c %i -- "$lock") /pid /p" | head -n 1)
	echo "pyinfra-gpu-lock: $lock is held by ${holder:-somebody}: let it end, or end it, and run again" >&2
	exit 75
fi
exec sh -c "$4"
