#!/bin/sh
# Runs COMMAND as root while it holds LOCK, for which it waits up to SECONDS. To open a lock that
# somebody else can exchange for a link would be to make a file wherever that link leads.
#
#   sh locked.sh LOCK SECONDS COMMAND
set -u
if ! root_only "${1%/*}"; then
	echo "somebody else than root can change $open" >&2
	exit 1
fi
exec flock -w "$2" "$1" sh -c "$3"
