#!/bin/sh
# Runs COMMAND as OWNER where packets pass from and to ADDRESSES alone, whatever it listens at.
#
#   sh group.sh OWNER COMMAND ADDRESSES
#
# ADDRESSES  with or without a prefix length, blanks between them
#
# systemd attaches the limit to a control group of COMMAND's own, so it ends with COMMAND and touches
# nobody else. Where that is not possible COMMAND runs all the same; it finds out by trying.
set -u
owner=$1 command=$2 addresses=$3
set -- systemd-run --quiet --scope --collect -p IPAddressDeny=any -p "IPAddressAllow=$addresses"
if "$@" true 2>/dev/null; then as_owner "$owner" "$command" "$@"; fi
as_owner "$owner" "$command"
