#!/bin/sh
# Installs uv into a small environment of its own, unless it is there as it is asked.
#
#   sh installer.sh FOLDER VERSION GUARDED LOCKED WHEELS PIP-OPTION...
#
# GUARDED  1: refuse a folder that somebody else than root can change, or the way to it
# LOCKED   the line of the lock that names its digest; empty: whatever the index serves
# WHEELS   the folder on this host that it comes from; empty: it comes from elsewhere
#
# It is made beside FOLDER and takes its place once it is whole, so that what does not have its digest,
# or was cut off, leaves the one that works. -I keeps Python from the folder it is started in and from
# the user's settings: as root it would run whatever lies there.
set -u
umask 022
folder=$1 version=$2 guarded=$3 locked=$4 wheels=$5
shift 5
cd /
guarded "$guarded" "$folder"
if [ "$wheels" ]; then guarded "$guarded" "$wheels"; fi
# Another run may have installed it while this one waited for the lock.
case $("$folder/bin/uv" -V 2>/dev/null) in
"uv $version" | "uv $version "*)
	if [ ! "$locked" ] || [ "$(cat "$folder/lock.txt" 2>/dev/null)" = "$locked" ]; then exit 0; fi
	;;
esac
new=$folder.new
trap 'rm -rf -- "$new"' EXIT
rm -rf -- "$new"
python3 -I -m venv "$new" || exit 1
pip() {
	"$new/bin/python" -I -m pip install --quiet --no-input --disable-pip-version-check --no-deps \
		--only-binary :all: "$@"
}
if [ "$locked" ]; then
	printf '%s\n' "$locked" | pip --require-hashes "$@" -r /dev/stdin || exit 1
	printf '%s\n' "$locked" >"$new/lock.txt" || exit 1
else
	pip "$@" "uv==$version" || exit 1
fi
sync -f "$new"
rm -rf -- "$folder.old"
if [ -e "$folder" ]; then mv -T -- "$folder" "$folder.old" || exit 1; fi
mv -T -- "$new" "$folder" && rm -rf -- "$folder.old"
