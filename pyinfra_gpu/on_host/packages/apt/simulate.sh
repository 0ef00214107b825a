#!/bin/sh
# What apt would do, which packages are on hold, and what would be fetched, in one round trip.
#
#     simulate.sh MARK COMMAND ...
#
# MARK is a line that ends each of the three parts. COMMAND is the command line of apt-get; nothing
# of it runs for real.

mark=$1
shift
"$@" --simulate 2>&1
printf '%s\n' "$mark"
apt-mark showhold
printf '%s\n' "$mark"
"$@" --print-uris 2>&1
printf '%s\n' "$mark"
