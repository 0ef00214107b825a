#!/bin/sh
# Runs a transaction of apt, with a guard in place while it lasts.
#
#     transaction.sh FOLDER GUARD ALLOWED HELD COMMAND ...
#
# FOLDER is where a folder of our own may be made, in which programs may be run. GUARD is the text
# of guard.sh, ALLOWED that of its list. HELD are the packages, blanks between them, that are on hold
# and change: apt takes them off it, and they are on hold again when this ends, unless it is killed;
# then the next run finds that. COMMAND is the command line of apt-get. The guard is named in a
# configuration file of its own, which only this command is told of.

where=$1 guard=$2 allowed=$3 held=$4
shift 4
find "$where" -maxdepth 1 -name 'pyinfra-gpu-apt.*' -mmin +1440 -exec rm -rf {} +
folder=$(mktemp -d "$where/pyinfra-gpu-apt.XXXXXX") || exit 1
ended() {
	status=$?
	trap '' HUP INT TERM
	rm -rf "$folder"
	[ ! "$held" ] || apt-mark hold $held >/dev/null || exit 1
	exit $status
}
trap ended EXIT
trap 'exit 1' HUP INT TERM
printf '%s' "$guard" >"$folder/guard" && chmod 0700 "$folder/guard" || exit 1
printf '%s' "$allowed" >"$folder/allowed" || exit 1
printf 'DPkg::Pre-Install-Pkgs { "%s %s"; };\nDPkg::Tools::Options::%s::Version "3";\n' \
	"$folder/guard" "$folder/allowed" "$folder/guard" >"$folder/apt.conf" || exit 1
APT_CONFIG=$folder/apt.conf "$@"
