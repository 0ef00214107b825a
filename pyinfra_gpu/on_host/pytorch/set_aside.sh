#!/bin/sh
# Sets aside what lies among the packages and is of no wheel: libraries in torch's folders, metadata
# that an interrupted removal left.
#
#   sh set_aside.sh ENVIRONMENT PATH...      paths below its folder of packages
set -eu
environment=$1
shift
for site in "$environment"/lib/python3*/site-packages; do
	for path in "$@"; do
		[ -e "$site/$path" ] || [ -h "$site/$path" ] || continue
		mv --backup=numbered -T -- "$site/$path" "$site/$path.before-pyinfra-gpu"
	done
done
