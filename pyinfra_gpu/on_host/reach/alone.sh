#!/bin/sh
# Runs COMMAND as OWNER in a network namespace of its own, which has a loopback interface and nothing
# else: what COMMAND listens at is reachable for what it starts, and for nobody else on any machine.
#
#   sh alone.sh OWNER COMMAND
#
# Where none can be made COMMAND runs all the same; it finds out by itself what it can reach.
set -u
if unshare --net ip link set lo up 2>/dev/null; then
	# shellcheck disable=SC2016
	as_owner "$1" "$2" unshare --net sh -c 'ip link set lo up && exec "$@"' sh
fi
as_owner "$1" "$2"
