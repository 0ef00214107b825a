#!/bin/sh
# Waits for the unit that builds torch, for 10 s at most, and says what its journal has of it.
#
#   sh follow.sh UNIT OWNER
#
# Prints the last step of ninja's, then the lines in which the program says something itself since it
# said "plan", with which it begins, and "ended" where the unit is not at work any more.
set -u
unit=$1 manager= of=--unit
if [ ! "$2" ]; then
	manager=--user of=--user-unit
	export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"
fi
left=20
while [ $left -gt 0 ] && systemctl $manager is-active --quiet "$unit"; do
	sleep 0.5
	left=$((left - 1))
done
journalctl --sync 2>/dev/null || sleep 1
journalctl --quiet --no-pager --output=cat --boot --lines=4000 "$of=$unit" |
	awk '/^pyinfra-gpu: plan$/ { n = 0; step = "" }
		/^pyinfra-gpu: / { said[++n] = substr($0, 1, 420) }
		/^\[[0-9]+\/[0-9]+\] / { step = substr($0, 1, 200) }
		END { if (step) print step
			for (i = n > 30 ? n - 29 : 1; i <= n; i++) print said[i] }'
[ $left -eq 0 ] || echo ended
