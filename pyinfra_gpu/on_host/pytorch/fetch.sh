#!/bin/sh
# Fetches what is to be installed, and compares it with its digests, before the environment is touched:
# it is installed into FOLDER, which is removed again. The installer's cache has it then.
#
#   sh fetch.sh FOLDER INSTALL-COMMAND...
set -u
folder=$1
shift
rm -rf -- "$folder"
"$@" --no-compile-bytecode --target "$folder"
status=$?
rm -rf -- "$folder"
exit $status
