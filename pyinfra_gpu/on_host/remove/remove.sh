#!/bin/sh
# Removes what is ours on a host, or says what would be removed: run by the owner, then by root.
#
#   sh remove.sh ACT GUARD PREFIX HEADER PATH...
#
# ACT     1: remove; empty: only say what would be
# GUARD   1: this is root, who refuses a prefix that somebody else can change
# HEADER  the line that each text of ours outside the prefix has
#
# Each removes what it owns. "remove PATH" is printed for what goes, "keep PATH (WHY)" for what
# stays: runs, checkouts, files that are not ours, and what a deploy has set aside.
set -u
act=$1 guard=$2 prefix=$3 header=$4
shift 4
guarded "$guard" "$prefix"

# inside FOLDER WHAT...: finds in a folder, and not below what stays there
inside() {
	folder=$1
	shift
	find "$folder" -xdev \( -path "$prefix/state/runs" -printf 'keep %p (runs and checkpoints)\n' \
		-o -path "$prefix/training/*" -printf 'keep %p (a training checkout)\n' \
		-o -name '*before-pyinfra-gpu*' -printf 'keep %p (set aside by a deploy)\n' \) -prune "$@"
}

# ours FILE: whether its place or its content says that a deploy has written it
ours() {
	case $1 in "$prefix"/* | */pyinfra-gpu-nvidia.gpg) return 0 ;; esac
	[ -f "$1" ] && [ ! -h "$1" ] && head -c 65536 -- "$1" | grep -qxF "$header"
}

for path do
	for aside in "$path".before-pyinfra-gpu*; do
		if [ -O "$aside" ]; then echo "keep $aside (set aside by a deploy)"; fi
	done
	if [ ! -e "$path" ] && [ ! -h "$path" ]; then continue; fi
	if [ "$(stat -c %u -- "$path")" != "$(id -u)" ]; then # once its owner has emptied it
		if [ "$act" ] && [ "$guard" ]; then rmdir -- "$path" 2>/dev/null; fi
		continue
	fi
	if [ -d "$path" ] && [ ! -h "$path" ]; then
		kept=$(inside "$path")
		if [ "$kept" ]; then printf '%s\n' "$kept"; fi
		if [ "$kept" ] && ! inside "$path" -o ! -type d -print | grep -qv '^keep '; then continue; fi
	elif ! ours "$path"; then
		echo "keep $path (not written by pyinfra-gpu)"
		continue
	fi
	echo "remove $path"
	[ "$act" ] || continue
	find "$path" -xdev -depth ! -path "$prefix/state/runs" ! -path "$prefix/state/runs/*" \
		! -path "$prefix/training/*" ! -path '*before-pyinfra-gpu*' -delete 2>/dev/null
done
if [ ! "$guard" ]; then # what the launcher has linked for the owner's user manager
	units=$(getent passwd "$(id -u)" | cut -d: -f6)/.config/systemd/user
	for link in "$units"/pyinfra-gpu-train* "$units"/*.wants/pyinfra-gpu-train*; do
		case $(readlink -- "$link") in "$prefix"/*) ;; *) continue ;; esac
		echo "remove $link"
		if [ "$act" ]; then rm -f -- "$link"; fi
	done
fi
if [ "$act" ]; then rmdir -- "$prefix" 2>/dev/null; fi
exit 0
