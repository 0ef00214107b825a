#!/bin/sh
# Says what the unit that builds torch says in its journal, until it ends.
#
#   sh follow.sh UNIT OWNER
#
# Prints the lines in which the program says something itself, since it said "plan", with which it
# begins, and once a minute the last step of ninja's: "torch: compile", "torch: [90/6300] ...".
set -u
unit=$1 manager= of=--unit
if [ ! "$2" ]; then
	manager=--user of=--user-unit
	export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"
fi
shown=0 turn=0
while :; do
	systemctl $manager is-active --quiet "$unit"
	ended=$?
	journalctl --sync 2>/dev/null || sleep 1
	new=$(journalctl --quiet --no-pager --output=cat --boot --lines=4000 "$of=$unit" |
		awk -v shown=$shown -v minute=$((turn % 12)) '
			/^pyinfra-gpu: plan$/ { n = 0; step = "" }
			/^pyinfra-gpu: / { said[++n] = "torch: " substr($0, 14, 420) }
			/^\[[0-9]+\/[0-9]+\] / { step = "torch: " substr($0, 1, 60) }
			END { if (step && !minute) print step
				for (i = shown + 1; i <= n; i++) print said[i] }')
	if [ "$new" ]; then printf '%s\n' "$new"; fi
	shown=$((shown + $(printf '%s\n' "$new" | grep -c '^torch: [^[]')))
	if [ $ended -ne 0 ]; then exit 0; fi
	turn=$((turn + 1))
	sleep 5
done
