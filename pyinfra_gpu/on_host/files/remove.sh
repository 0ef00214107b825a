#!/bin/sh
# Removes the file PATH; a link itself, never what it leads to.
#
#   sh remove.sh PATH GUARDED
#
# GUARDED  1: refuse a folder that somebody else than root can change, or the way to it
set -u
guarded "$2" "${1%/*}"
rm -f -- "$1"
