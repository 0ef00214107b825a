# The time that a look has: each concern of it, and all of it. Whoever runs this, root or the owner, is
# woken every so many seconds, and leaves what hangs.

tick=${PG_TICK:-5}
ticks=$((${PG_SECONDS:-50} / tick))
watch='' stuck=${PG_STUCK-} most=5

# watched begins to wake whoever runs this every so many seconds, for as long as that lives.
watched() {
	trap 'woken=1' USR1
	have sleep || return
	# Of a subshell, which this may be, $$ is the parent.
	me=$$
	read -r me rest </proc/self/stat
	(
		trap 'kill $nap; exit' TERM
		while :; do
			sleep $tick &
			nap=$!
			wait $nap && kill -USR1 $me || exit
		done
	) >/dev/null &
	watch=$!
}

# told KEYS COMMAND...: a concern, in a process of its own: whatever goes wrong in one, the others
# are told. One that hangs for good, in a file system that is gone, is left to itself after $most
# ticks.
told() {
	key=$1 patience=$most
	shift
	if [ $ticks -le 0 ]; then late; return 1; fi
	"$@" &
	while
		woken=
		wait $!
		[ "$woken" ]
	do
		ticks=$((ticks - 1)) patience=$((patience - 1))
		if [ $ticks -le 0 ] || [ $patience -le 0 ]; then
			kill -9 $!
			late
			return 1
		fi
	done
}

late() { for each in $key; do put look.late "$each"; done; }

# below KEYS COMMAND...: the same, of what is below the prefix, where one is like the others
below() {
	key=$1
	if [ "$stuck" ]; then late
	else told "$@" || stuck=1; fi
}

unwatch() { [ "$watch" ] && kill $watch; }
