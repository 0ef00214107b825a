#!/bin/sh
# Makes the directories below a prefix what they should be: root's, and the owner's.
#
#   sh directories.sh PREFIX OWNER KEPT ANEW OWNERS PRESENT
#
# PREFIX   absolute path; root's
# OWNER    user whose the OWNERS are; empty: all is made by and for whoever runs this
# KEPT     names below PREFIX, with blanks between: root's, and taken over as they are
# ANEW     root's too; what belongs to somebody else is set aside: root runs or believes what is in it
# OWNERS   the owner's; what belongs to somebody else is set aside
# PRESENT  as OWNERS, but never made here
#
# Nothing below these directories is touched, and no link is followed: once PREFIX is root's, nobody
# else can exchange what is directly below it. An empty directory is not worth setting aside.
set -eu
umask 022
prefix=$1 owner=$2 kept=$3 anew=$4 owners=$5 present=$6

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

whose() { stat -c %u -- "$1"; }

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

# made PATH [UID GID]
made() {
	if ! is_there "$1"; then mkdir -- "$1"; fi
	if [ "$owner" ]; then chown -h -- "$2:$3" "$1"; fi
	if [ "$(stat -c %a -- "$1")" != 755 ]; then chmod 0755 -- "$1"; fi
}

# anew_unless_of UID PATH
anew_unless_of() {
	if [ "$owner" ] && is_there "$2" && [ "$(whose "$2")" != "$1" ]; then kept_aside "$2"; fi
}

if ! is_there "$prefix"; then mkdir -p -- "$prefix"; fi
made "$prefix" 0 0
for name in $kept; do made "$prefix/$name" 0 0; done
for name in $anew; do
	anew_unless_of 0 "$prefix/$name"
	made "$prefix/$name" 0 0
done
for name in $owners; do
	anew_unless_of "$user" "$prefix/$name"
	made "$prefix/$name" "$user" "$group"
done
for name in $present; do
	if [ ! -h "$prefix/$name" ] && [ -d "$prefix/$name" ]; then anew_unless_of "$user" "$prefix/$name"; fi
done

# Root's, so that nobody can exchange it while somebody holds it, and for the owner's group to read:
# whoever can open a file can lock it. Who opened one while it was open to all could still lock it, so
# that it is made anew, unless somebody works.
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
