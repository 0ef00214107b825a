#!/bin/sh
# Installs what was brought of a nightly: each folder in FOLDER holds one wheel.
#
#   sh nightly.sh FOLDER COMMAND...       COMMAND is given the wheels behind its words
set -eu
folder=$1
shift
for wheel in "$folder"/*/*.whl; do set -- "$@" "$wheel"; done
exec "$@"
