#!/bin/sh
# Sets aside what stands at PATH, and prints the name that it has then.
#
#   sh keep.sh PATH GUARDED
#
# GUARDED  1: refuse a folder that somebody else than root can change, or the way to it
set -u
guarded "$2" "${1%/*}"
set_aside "$1" && echo "$aside"
