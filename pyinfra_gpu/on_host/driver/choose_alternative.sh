# Have update-alternatives choose a group anew, with all the links that follow it.
#
# $1: the group; $2: the path that it has to lead to
#
# By itself where that is the right choice, so that a later driver finds it that way; a link of the
# group that is missing or leads elsewhere is made again.

update-alternatives --auto "$1" || exit 1
if [ "$(readlink -- "/etc/alternatives/$1")" != "$2" ]; then
	update-alternatives --set "$1" "$2" || exit 1
fi
ldconfig
