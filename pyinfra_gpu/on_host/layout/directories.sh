#!/bin/sh
# Makes the directories below a prefix what they should be: root's, and the owner's.
#
#   sh directories.sh PREFIX OWNER [NAME WHOSE]...
#
# PREFIX   absolute path; root's
# OWNER    user who runs what is deployed; empty: all is made by and for whoever runs this
# NAME     of a directory below PREFIX
# WHOSE    root: root's; owner: the owner's; present: the owner's, but never made here. What belongs
#          to somebody else is set aside: it may be run or believed
#
# Nothing below these directories is touched, and no link is followed: once PREFIX is root's, nobody
# else can exchange what is directly below it. An empty directory is not worth setting aside.
set -eu
umask 022
prefix=$1 owner=$2
shift 2

fail() {
	echo "$*" >&2
	exit 1
}

user='' group=''
if [ "$owner" ]; then
	root_only "${prefix%/*}" || fail "somebody else than root can change $open"
	user=$(id -u -- "$owner" 2>/dev/null) || fail "there is no user $owner"
	group=$(id -g -- "$owner")
fi

# is_there PATH: whether there is a directory; anything else is somebody's, and a reason to stop
is_there() {
	if [ -h "$1" ]; then fail "$1 is a link: move it away"; fi
	if [ -e "$1" ] && [ ! -d "$1" ]; then fail "$1 is not a directory: move it away"; fi
	[ -d "$1" ]
}

kept_aside() {
	rmdir -- "$1" 2>/dev/null && return
	set_aside "$1"
	echo "$1 is kept as $aside"
}

# made PATH UID GID
made() {
	if ! is_there "$1"; then mkdir -p -- "$1"; fi
	if [ "$owner" ]; then chown -h -- "$2:$3" "$1"; fi
	chmod 0755 -- "$1"
}

made "$prefix" 0 0
while [ $# -gt 1 ]; do
	path=$prefix/$1 whose=$2 uid=0 gid=0
	shift 2
	if [ "$whose" = present ] && { [ -h "$path" ] || [ ! -d "$path" ]; }; then continue; fi
	if [ "$whose" != root ]; then uid=$user gid=$group; fi
	if [ "$owner" ] && is_there "$path" && [ "$(stat -c %u -- "$path")" != "$uid" ]; then
		kept_aside "$path"
	fi
	if [ "$whose" != present ]; then made "$path" "$uid" "$gid"; fi
done

# Root's, so that nobody can exchange it while somebody holds it, and for the owner's group to read:
# whoever can open a file can lock it. Who opened one while it was open to all could still lock it, so
# that it is made again, unless somebody works.
lock=$prefix/.lock
if [ "$owner" ]; then
	case $(stat -c '%F:%h' -- "$lock" 2>/dev/null || :) in
	'regular file:1' | 'regular empty file:1')
		if [ "$(stat -c %a -- "$lock")" != 640 ] && flock -n "$lock" true; then rm -f -- "$lock"; fi
		;;
	*)
		if [ -d "$lock" ] && [ ! -h "$lock" ]; then kept_aside "$lock"; fi
		rm -f -- "$lock"
		;;
	esac
	if [ ! -e "$lock" ]; then (umask 077 && set -C && : >"$lock"); fi
	chown -h -- "0:$group" "$lock"
	chmod 0640 -- "$lock"
fi
