#!/bin/sh
# Runs a transaction of apt, with a guard in place while it lasts.
#
#     transaction.sh GUARD ALLOWED HELD COMMAND ...
#
# GUARD is the text of guard.sh, ALLOWED its list. HELD are the packages, blanks between them, that are
# on hold and change: apt takes them off it, and they are on hold again when this ends, unless it is
# killed; then the next run finds that. COMMAND is the command line of apt-get, without what to do.

export PYINFRA_GPU_GUARD="$1" PYINFRA_GPU_ALLOWED="$2"
held=$3
shift 3
ended() {
	status=$?
	trap '' HUP INT TERM
	[ ! "$held" ] || apt-mark hold $held >/dev/null || exit 1
	exit $status
}
trap ended EXIT
trap 'exit 1' HUP INT TERM
"$@" -o 'DPkg::Pre-Install-Pkgs::=/usr/bin/env sh -c "$PYINFRA_GPU_GUARD"' \
	-o DPkg::Tools::Options::/usr/bin/env::Version=3
