# Keep the file that a link leads to under another name, and print its path.
#
# $1: the link

file=$(readlink -f -- "$1") && [ "$file" ] || exit 1
if [ -e "$file" ]; then
	set_aside "$file" || exit 1
fi
printf '%s\n' "$file"
