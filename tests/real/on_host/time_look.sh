#!/bin/bash
# What a look at this host costs: seconds by the clock, of the user and of the system.
#
#     time_look.sh FILE TIMES

export SUDO_USER=ubuntu TIMEFORMAT='%R %U %S'
for ((n = 0; n < $2; n++)); do
	time /usr/bin/python3 -I -S - <"$1" >/dev/null
done
