#!/bin/sh
# Prints what the unit that builds torch says of itself, all of it, until it ends.
#
#   sh follow.sh UNIT MANAGER
#
# MANAGER  --user where it is a unit of the user's own; else empty
set -u
unit=$1 manager=$2 run=/run
if [ "$manager" ]; then export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:=/run/user/$(id -u)}" run=$XDG_RUNTIME_DIR; fi
pid=$(systemctl $manager show --property=MainPID --value "$unit") || exit 1
said=$run/${unit%.service}/said
if [ "$pid" = 0 ]; then exec cat "$said"; fi
# It ends with 1 where the file was not there at first.
tail --lines=+1 --follow=name --retry --sleep-interval=2 --pid="$pid" "$said" 2>/dev/null || :
