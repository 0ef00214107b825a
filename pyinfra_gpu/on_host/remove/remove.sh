#!/bin/sh
# Removes what is ours on a host, or says what would be removed: run by the owner, then by root.
#
#   sh remove.sh ACT GUARD PREFIX HEADER PATH...
#
# ACT     1: remove; empty: only say what would be
# GUARD   1: this is root, who refuses a prefix that somebody else can change
# HEADER  the line that each text of ours outside the prefix has
#
# Each removes what it owns. "remove PATH" is printed for what goes, "keep PATH (WHY)"
# for what stays: runs, checkouts, files that are not ours, and what a deploy has set aside.
set -u
act=$1 guard=$2 prefix=$3 header=$4
shift 4
guarded "$guard" "$prefix"
runs=$prefix/state/runs

# kept FOLDER: what in it stays, a line each
kept() {
	find "$1" -xdev \( -path "$runs" -o -path "$prefix/training/*" -o -name '*before-pyinfra-gpu*' \) \
		-prune -print
}

# ours PATH: whether this is a file of ours, or a folder in which there is more than what stays
ours() {
	if [ -d "$1" ] && [ ! -h "$1" ]; then
		[ "$(kept "$1")" ] || return 0
		kept "$1" | while read -r each; do
			case $each in
			"$runs") echo "keep $each (runs and checkpoints)" ;;
			"$prefix"/training/*) echo "keep $each (a training checkout)" ;;
			*) echo "keep $each (set aside by a deploy)" ;;
			esac
		done
		[ "$(find "$1" -xdev \( -path "$runs" -o -path "$prefix/training/*" \
			-o -name '*before-pyinfra-gpu*' \) -prune -o ! -type d -print -quit)" ]
		return
	fi
	case $1 in "$prefix"/* | */pyinfra-gpu-nvidia.gpg) return 0 ;; esac
	[ -f "$1" ] && [ ! -h "$1" ] && head -c 65536 -- "$1" | grep -qxF "$header" && return
	echo "keep $1 (not written by pyinfra-gpu)"
	return 1
}

for path do
	for aside in "$path".before-pyinfra-gpu*; do
		if [ -O "$aside" ]; then echo "keep $aside (set aside by a deploy)"; fi
	done
	if [ ! -e "$path" ] && [ ! -h "$path" ]; then continue; fi
	if [ "$(stat -c %u -- "$path")" = "$(id -u)" ]; then
		if ours "$path"; then
			echo "remove $path"
			if [ "$act" ]; then
				find "$path" -xdev -depth ! -path "$runs" ! -path "$runs/*" \
					! -path "$prefix/training/*" ! -path '*before-pyinfra-gpu*' -delete 2>/dev/null
			fi
		fi
	elif [ "$act" ] && [ "$guard" ] && [ -d "$path" ] && [ ! -h "$path" ]; then
		rmdir -- "$path" 2>/dev/null # its owner has emptied it
	fi
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
