# Have update-alternatives choose a group anew, with all the links that follow it.
#
# $1: the group; $2: the path that it has to lead to; $3: a link of it that does not, or ""
#
# By itself where that is the right choice, so that a later driver finds it that way. A link that is
# missing or leads elsewhere is made again. What is no link stays where it is, says
# update-alternatives(1): it is kept under a name that ldconfig does not take up.

if [ "$3" ] && [ -e "$3" ] && [ ! -h "$3" ]; then
	kept=${3%/*}/before-pyinfra-gpu.${3##*/}.$(date +%Y%m%dT%H%M%S)
	mv -T -- "$3" "$kept" || exit 1
	echo "what was there is kept as $kept"
fi
update-alternatives --auto "$1" || exit 1
if [ "$(readlink -- "/etc/alternatives/$1")" != "$2" ]; then
	update-alternatives --set "$1" "$2" || exit 1
fi
ldconfig
