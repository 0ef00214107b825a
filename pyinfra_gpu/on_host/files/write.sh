#!/bin/sh
# Writes a file, whole or not at all: what comes on standard input, in base64, becomes TARGET.
#
#   sh write.sh TARGET SIZE MODE OWNER GUARDED
#
# TARGET   absolute path; what stands there is replaced, a link itself and never what it leads to
# SIZE     in bytes of the content: input that was cut off is not written
# MODE     of the file, e.g. 0600
# OWNER    user it is given to, with that user's group; empty: whoever runs this
# GUARDED  1: refuse a folder that somebody else than root can change, or the way to it
#
# The content is in a file of an unguessable name beside TARGET, for nobody else to read, until its
# mode and owner are right and it is on disk; then it is renamed.
set -u
umask 077
target=$1 size=$2 mode=$3 owner=$4 guarded=$5
folder=${target%/*}

fail() { # What is not read would end the connection in the middle.
	cat >/dev/null
	echo "$*" >&2
	exit 1
}

if [ "$guarded" ]; then
	root_only "$folder" || fail "somebody else than root can change $open"
fi
if [ -d "$target" ] && [ ! -h "$target" ]; then fail "a directory stands there: move it away, and run again"; fi
new=$(mktemp -- "$folder/.${target##*/}.XXXXXXXXXXXX" 2>&1) || fail "$new"
trap 'rm -f -- "$new"' EXIT
trap 'exit 1' HUP INT TERM
base64 -d >"$new" || fail "its content did not arrive"
[ "$(wc -c <"$new")" -eq "$size" ] || fail "its content did not arrive whole"
chmod -- "$mode" "$new" || exit 1
if [ "$owner" ]; then chown -- "$owner:" "$new" || exit 1; fi
sync -- "$new" && mv -f -T -- "$new" "$target" && sync -- "${folder:-/}"
