#!/bin/sh
# Sets libraries aside that lie in torch's folders and are of no wheel's.
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
