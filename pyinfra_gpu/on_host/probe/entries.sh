# entries KEY PATHS: what stands at each of these paths, one a line
entries() {
	about=$1
	IFS=$nl
	set -f
	set -- $2
	n=$#
	while [ $n -gt 0 ]; do
		n=$((n - 1)) path=$1
		shift
		kind_of "$path"
		case $kind in
		absent) put "$about.absent" "$path" ;;
		hidden) put "$about.hidden" "$path" ;;
		*) set -- "$@" "$path" ;;
		esac
	done
	listed "$about.absent" "$about.hidden"
	has stat "$about.stat" || return
	files='' asked=$nl$*$nl
	[ $# = 0 ] || for row in ${seen:-$(alone 10 stat -c '%f %u %U %s %n' -- "$@")}; do
		path=${row#* * * * }
		case $asked in *"$nl$path$nl"*) ;; *) continue ;; esac
		asked=${asked%%"$nl$path$nl"*}$nl${asked#*"$nl$path$nl"}
		put "$about.stat" "$row"
		size=${row#* * * } size=${size%% *}
		case $row in
		a*) if target=$(readlink -- "$path"); then put "$about.target" "$path -> $target"; fi ;;
		8*)
			if [ ! -r "$path" ]; then put "$about.unread" "$path"
			elif [ "$size" -le 4194304 ]; then files=$files$nl$path; fi
			;;
		esac
	done
	listed "$about.stat" "$about.target" "$about.unread"
	if [ ! "$files" ]; then listed "$about.sha256"
	elif has sha256sum "$about.sha256"; then
		for row in $(alone 10 sha256sum -- $files); do put "$about.sha256" "$row"; done
		listed "$about.sha256"
	fi
}

