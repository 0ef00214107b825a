#!/bin/sh
# Installs uv into a small environment of its own, unless it is there in the version that is asked.
#
#   sh installer.sh FOLDER VERSION GUARDED PIP-OPTION...
#
# GUARDED  1: refuse a folder that somebody else than root can change, or the way to it
#
# -I keeps Python from the folder it is started in and from the user's settings: as root it would run
# whatever lies there.
set -u
umask 022
folder=$1 version=$2 guarded=$3
shift 3
cd /
if [ "$guarded" ] && ! root_only "$folder"; then
	echo "somebody else than root can change $open" >&2
	exit 1
fi
# Another run may have installed it while this one waited for the lock.
case $("$folder/bin/uv" -V 2>/dev/null) in
"uv $version" | "uv $version "*) exit 0 ;;
esac
python3 -I -m venv --clear "$folder" &&
	"$folder/bin/python" -I -m pip install --quiet --no-input --disable-pip-version-check "$@" \
		"uv==$version"
