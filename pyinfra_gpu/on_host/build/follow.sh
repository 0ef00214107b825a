#!/bin/sh
# Waits for the unit that builds torch, for 10 s at most, and says what its journal has of it.
#
#   sh follow.sh UNIT OWNER
#
# Prints the lines in which the program says something itself, then the last step of ninja's, and in
# the end "ended" where the unit is not at work any more.
set -u
unit=$1 owner=$2 manager=
if [ ! "$owner" ]; then
	manager=--user
	export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"
fi
invocation=$(systemctl $manager show --property=InvocationID --value "$unit")
end=ended
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	systemctl $manager is-active --quiet "$unit" || break
	end=
	sleep 0.5
done
systemctl $manager is-active --quiet "$unit" || end=ended
if [ "$invocation" ]; then
	journalctl $manager --quiet --no-pager --output=cat --lines=4000 "_SYSTEMD_INVOCATION_ID=$invocation" |
		awk '/^pyinfra-gpu: / { print substr($0, 1, 200) } /^\[[0-9]+\/[0-9]+\] / { step = $0 }
			END { if (step) print substr(step, 1, 200) }' | tail -n 30
fi
echo "$end"
