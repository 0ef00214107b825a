# What stands at a path. $seen: rows of all that was asked for at once, "MODE UID OWNER SIZE PATH"; a
# program's start costs more than what it looks at.
seen='' said_sums=''

# row_of PATH sets $row to its owner and mode as they were seen, and $size; no names are expanded after it
row_of() {
	IFS=$nl row='' size=''
	set -f
	for each in $seen; do
		case $each in *" $1") ;; *) continue ;; esac
		[ "${each#* * * * }" = "$1" ] || continue
		row=${each%% *} each=${each#* } size=${each#* * }
		row="${each%% *} $row" size=${size%% *}
		break
	done
	IFS=$ifs
}

# small KEY FILE tells the whole text of a file whose size was seen, where a shell can read it by itself:
# plain lines, or one without its end, and no null bytes, which it would drop.
small() {
	row_of "$2"
	set +f
	case $row in *' 8'*) [ -r "$2" ] && [ "$size" -gt 0 ] && [ "$size" -lt 999 ] || return ;; *) return 1 ;; esac
	n=0 count=0 lines=''
	while IFS= read -r row; do
		n=$((n + ${#row} + 1)) count=$((count + 1))
		case $row in *[!\ -~]*) return 1 ;; esac
		lines=$lines$nl$row
	done <"$2"
	if [ "$n:${#row}" = "0:$size" ]; then
		case $row in *[!\ -~]*) return 1 ;; esac
		put "$1" "$row"
		return
	fi
	[ $n = "$size" ] && [ ! "$row" ] || return
	while [ "$lines" ]; do
		lines=${lines#?} row=${lines%%"$nl"*} lines=${lines#"$row"}
		printf '%s +%s\n' "$1" "$row"
	done
	printf '%s #%s\n' "$1" $count
}

# entries KEY PATHS: what stands at each of these paths, one a line
entries() {
	standing "$@"
	digests "$1"
}

# standing KEY PATHS: the same without digests; $files are those that have one
standing() {
	about=$1 files=''
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
	asked=$nl$*$nl
	if ! has stat "$about.stat"; then set --; fi
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
	if have stat; then listed "$about.stat" "$about.target" "$about.unread"; fi
	set +f
	IFS=$ifs
}

# digests KEY: those of $files, by what `together` has asked as "sums" or by asking now
digests() {
	about=$1
	if [ "$files" ]; then
		has sha256sum "$about.sha256" || return
		IFS=$nl
		set -f
		for row in ${said_sums:-$(alone 10 sha256sum -- $files)}; do
			case $row in
			\\*) ;;
			*) case $files$nl in *"$nl${row#*  }$nl"*) ;; *) continue ;; esac ;;
			esac
			put "$about.sha256" "$row"
		done
		set +f
		IFS=$ifs
	fi
	listed "$about.sha256"
}
