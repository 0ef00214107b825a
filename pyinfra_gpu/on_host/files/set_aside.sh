# set_aside PATH: renames what stands there to a free name beside it, which it sets as $aside. A link
# itself is renamed, never what it leads to. The first name, the user's original, is never replaced;
# a later one has the time at its end.
set_aside() {
	aside=$1.before-pyinfra-gpu
	if [ -e "$aside" ] || [ -h "$aside" ]; then aside=$aside.$(date +%Y%m%dT%H%M%S); fi
	mv -T -- "$1" "$aside"
}
