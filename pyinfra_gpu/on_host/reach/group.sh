#!/bin/sh
# Runs COMMAND as OWNER in a unit of its own, which ends all that COMMAND started after SECONDS, and
# where packets pass from and to ADDRESSES and this host's own alone, whatever COMMAND listens at.
#
#   sh group.sh OWNER COMMAND SECONDS ADDRESSES
#
# ADDRESSES  with or without a prefix length, blanks between them
#
# systemd attaches the limits to a control group of COMMAND's own, so they end with COMMAND and touch
# nobody else. Where that is not possible COMMAND runs all the same; it finds out by trying.
set -u
owner=$1 command=$2 seconds=$3 addresses=$4
own=$(hostname -I 2>/dev/null)
set -- systemd-run --quiet --scope --collect -p "RuntimeMaxSec=$seconds" -p IPAddressDeny=any
for address in $addresses $own; do set -- "$@" -p "IPAddressAllow=$address"; done
if "$@" true 2>/dev/null; then as_owner "$owner" "$command" "$@"; fi
as_owner "$owner" "$command"
