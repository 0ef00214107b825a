# dpkg takes off hold what it unpacks, and whatever comes after that may fail, or be cut off.

# left_off_hold FOLDER: what commands that were killed have noted below FOLDER, and not put back on
# hold. One that is still at work does so itself, too, which does no harm.
left_off_hold() { cat "$1"/pyinfra-gpu-apt.*/held 2>/dev/null; }

# hold_again FOLDER NAME ...: puts back on hold what is still installed of that; what was noted below
# FOLDER is settled then. What was removed would go on hold, too, and could not come back.
hold_again() {
	noted=$1
	shift
	[ "${1-}" ] || return 0
	still=$(dpkg-query -W -f '${db:Status-Status} ${binary:Package}\n' -- "$@" 2>/dev/null |
		while read -r state name; do
			case $state in not-installed | config-files) ;; *) echo "$name" ;; esac
		done)
	[ ! "$still" ] || apt-mark hold $still >/dev/null || return 1
	rm -f "$noted"/pyinfra-gpu-apt.*/held
}

# held_until_ended WHERE FOLDER NAME ...: from now on, and when the shell ends, however it ends, these
# are put back on hold and FOLDER, made below WHERE, goes. Where dpkg goes on behind a killed apt it
# has the lock: then FOLDER stays, and the next command of ours does it.
held_until_ended() {
	where=$1 folder=$2
	shift 2
	held="$*"
	trap ended EXIT
	trap 'exit 1' HUP INT TERM
	printf '%s\n' "$held" >"$folder/held" || exit 1
}
ended() {
	status=$?
	trap '' HUP INT TERM
	if hold_again "$where" $held; then rm -rf "$folder"; elif [ $status = 0 ]; then status=1; fi
	exit $status
}
