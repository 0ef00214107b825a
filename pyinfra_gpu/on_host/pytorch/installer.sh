#!/bin/sh
# Installs uv into a small environment of its own.
#
#   sh installer.sh FOLDER REQUIREMENT GUARDED WHEELS PIP-OPTION...
#
# REQUIREMENT  its version, with its digest where a lock names that
# GUARDED      1: refuse a folder that somebody else than root can change, or the way to it
# WHEELS       the folder on this host that it comes from; empty: it comes from elsewhere
#
# -I keeps Python from the folder it is started in and from the user's settings: as root it would run
# whatever lies there.
set -eu
umask 022
folder=$1 requirement=$2 guarded=$3 wheels=$4
shift 4
cd /
guarded "$guarded" "$folder"
if [ "$wheels" ]; then guarded "$guarded" "$wheels"; fi
python3 -I -m venv --clear "$folder"
printf '%s\n' "$requirement" | "$folder/bin/python" -I -m pip install --quiet --no-input --no-deps \
	--disable-pip-version-check --only-binary :all: "$@" --requirement /dev/stdin
