#!/bin/sh
# Prints a piece of a file in base64.
#
#   sh send.sh FILE OFFSET SIZE
set -u
tail -c "+$(($2 + 1))" -- "$1" | head -c "$3" | base64 -w 65536
