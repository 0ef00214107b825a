# Removes what is left of a fetch that meanwhile.sh began, and its host's end cut off.
#
#     meanwhile_left.sh PLACE
#
# As the owner, whose the folder of PLACE is; whoever is at work there has locked that.

place=$1
[ -d "${place%/*}" ] || exit 0
exec 9<"${place%/*}"
if flock -n 9; then rm -rf -- "$place" "$place.log" "$place.txt"; fi
exit 0
