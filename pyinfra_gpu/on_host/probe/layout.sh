layout() {
	IFS=$nl
	set -f
	set -- $PG_PATHS
	for path do put layout.asked "$path"; done
	listed layout.asked
	n=$#
	while [ $n -gt 0 ]; do
		n=$((n - 1)) path=$1
		shift
		kind_of "$path"
		case $kind in
		absent) put layout.absent "$path" ;;
		hidden) put layout.hidden "$path" ;;
		*) set -- "$@" "$path" ;;
		esac
	done
	listed layout.absent layout.hidden
	if ! have stat; then unknown layout.stat "stat is not on this host"; return; fi
	files=
	[ $# = 0 ] || for row in $(bounded 10 stat -c '%f %u %U %s %n' -- "$@"); do
		put layout.stat "$row"
		path=${row#* * * * } size=${row#* * * } size=${size%% *}
		case $row in
		a*) if target=$(readlink -- "$path"); then put layout.target "$path -> $target"; fi ;;
		8*)
			if [ ! -r "$path" ]; then put layout.unread "$path"
			elif [ "$size" -le 4194304 ]; then files=$files$nl$path; fi
			;;
		esac
	done
	listed layout.stat layout.target layout.unread
	if [ ! "$files" ]; then listed layout.sha256
	elif ! have sha256sum; then unknown layout.sha256 "sha256sum is not on this host"
	else
		for row in $(bounded 10 sha256sum -- $files); do put layout.sha256 "$row"; done
		listed layout.sha256
	fi
}

