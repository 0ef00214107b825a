#!/bin/sh
# What apt would do, which packages are on hold, and what would be fetched, in one round trip.
#
#     simulate.sh COMMAND ...
#
# COMMAND is the command line of apt-get; nothing of it runs for real. "Done" is the last line.

"$@" --simulate 2>&1
apt-mark showhold | sed 's/^/Hold /'
"$@" --print-uris 2>&1
echo Done
