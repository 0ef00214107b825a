# root_only FOLDER: whether root alone can change what is in it, and every step of the way to it.
# Where that is not so, $open is the first place that somebody else can change. A folder that is not
# there passes: nobody else can make it. An access list shows as write permission of the group, so
# that counts whoever the group is; and in a folder like /tmp the sticky bit keeps nobody from
# putting something at a name that is free.
checked='' refused=''
root_only() {
	rest=$1/ at='' hops=0
	while [ "$rest" ]; do
		part=${rest%%/*} rest=${rest#*/}
		case $part in
		'' | .) continue ;;
		..) at=${at%/*}; continue ;;
		esac
		open=$at/$part
		case $checked in *":$open:"*) at=$open; continue ;; esac
		case $refused in *":$open:"*) return 1 ;; esac
		row=$(stat -c '%u %f' -- "$open" 2>/dev/null) || break
		case $row in
		'0 a'*)
			hops=$((hops + 1))
			[ $hops -lt 40 ] || return 1
			rest=$(readlink -- "$open")/$rest
			case $rest in /*) at='' ;; esac
			;;
		'0 4'*)
			if [ $((0x${row#* } & 18)) != 0 ]; then refused=$refused:$open:; return 1; fi
			at=$open checked=$checked:$open:
			;;
		*) refused=$refused:$open:; return 1 ;;
		esac
	done
	open=
}

# guarded GUARD FOLDER: where GUARD is not empty, exits unless root alone can change FOLDER.
guarded() {
	if [ ! "$1" ] || root_only "$2"; then return; fi
	echo "somebody else than root can change $open" >&2
	exit 1
}
