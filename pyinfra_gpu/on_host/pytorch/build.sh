#!/bin/sh
# Starts the program that builds torch as a unit of systemd's, unless it is at work already.
#
#   sh build.sh UNIT OWNER PROGRAM FOLDER MEMORY
#
# OWNER   the user who builds; empty: whoever runs this, who is not root, in a unit of their own
# MEMORY  MiB that the unit may use
#
# The unit belongs to nobody's login: a connection that breaks changes nothing of it. A compiler that
# is killed for memory does not end it: the program goes on with fewer of them. Niceness alone would
# leave it as much of the processors as any login: the kernel shares them out between sessions first
# (sched(7), autogroup), and between units by their weight.
set -u
unit=$1 owner=$2 program=$3 folder=$4 memory=$5
manager=
if [ ! "$owner" ]; then
	manager=--user
	export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"
	# Else the user's units end with the user's last login.
	loginctl enable-linger 2>/dev/null
fi
if systemctl $manager is-active --quiet "$unit"; then exit 0; fi
systemctl $manager reset-failed "$unit" 2>/dev/null
set -- --quiet --unit="$unit" --description="Builds torch from source (pyinfra-gpu)" --collect \
	--service-type=exec --property=LogRateLimitIntervalSec=0 \
	--property=Nice=10 --property=CPUWeight=20 --property=IOSchedulingClass=idle \
	--property=OOMPolicy=continue --property=MemoryMax="${memory}M" --property=TimeoutStopSec=60 \
	--property=RuntimeDirectory="${unit%.service}" --property=RuntimeDirectoryPreserve=yes \
	--property=ExecStartPre='/bin/rm -f ${RUNTIME_DIRECTORY}/said' \
	/usr/bin/python3 -I "$program" run "$folder"
if [ "$owner" ]; then set -- --uid="$owner" "$@"; else set -- --user "$@"; fi
if said=$(systemd-run "$@" 2>&1); then exit 0; fi
if systemctl $manager is-active --quiet "$unit"; then exit 0; fi # another run was faster
echo "the build cannot be started detached: ${said:-systemd-run said nothing}" >&2
exit 1
