# Who and what a restart would interrupt, from the files that systemd-logind keeps for its library:
# asked over D-Bus it could hang.

power() {
	sessions
	inhibitors
	text power.reboots "${PG_REBOOTS:+"$R$PG_REBOOTS"}"
}

# pts_of UID sets $terminal to the first pseudo terminal that belongs to that user.
pts_of() {
	terminal=
	for row in $terminals; do
		case $row in "$1":*) terminal=${row#*:}; return ;; esac
	done
}

# logind knows the terminal of a session from utmp, which newer systems no longer have. A user with
# a session and a pseudo terminal is then taken to sit at it.
sessions() {
	terminals= names=
	set -- "$R"/dev/pts/[0-9]*
	if [ -e "$1" ]; then
		if ! have stat || ! rows=$(stat -c '%u %U %n' -- "$@"); then
			unknown power.session "stat cannot read /dev/pts"
			return
		fi
		while read -r owner name path; do
			terminals="$terminals $owner:pts/${path##*/}"
			names="$names$name on pts/${path##*/}$nl"
		done <<-rows
			$rows
		rows
	fi
	if [ ! -d "$R/run/systemd/sessions" ]; then
		while read -r row; do
			if [ "$row" ]; then put power.session "$row"; fi
		done <<-names
			$names
		names
		listed power.session
		return
	fi
	for file in "$R"/run/systemd/sessions/*; do
		case $file in *.ref) continue ;; esac
		[ -f "$file" ] || continue
		legible "$file" power.session || continue
		session
	done
	listed power.session
}

# session reads $file and tells of a person at a terminal or a display.
session() {
	owner='' user='' class='' tty='' display='' seat='' type='' state=''
	while IFS='=' read -r name value || [ "$name" ]; do
		case $name in
		UID) owner=$value ;;
		USER) user=$value ;;
		CLASS) class=$value ;;
		TTY) tty=$value ;;
		DISPLAY) display=$value ;;
		SEAT) seat=$value ;;
		TYPE) type=$value ;;
		STATE) state=$value ;;
		esac
	done <"$file"
	case $class in user*) ;; *) return ;; esac
	case $type in wayland | x11 | mir) display=${display:-${seat:-$type}} ;; esac
	# Who logged out and left something running holds the terminal in name only.
	if [ "$state" = closing ]; then tty='' display=''; fi
	pts_of "$owner"
	terminal=${tty:-${display:-$terminal}}
	if [ "$terminal" ]; then put power.session "${user:-$owner} on $terminal"; fi
}

inhibitors() {
	for file in "$R"/run/systemd/inhibit/*; do
		case $file in *.ref) continue ;; esac
		[ -f "$file" ] || continue
		legible "$file" power.inhibitor || continue
		what='' mode='' who='' reason=''
		while IFS='=' read -r name value || [ "$name" ]; do
			case $name in
			WHAT) what=$value ;;
			MODE) mode=$value ;;
			WHO) who=$value ;;
			WHY) reason=$value ;;
			esac
		done <"$file"
		case $mode:$what in
		block:*shutdown*) put power.inhibitor "$who${reason:+": $reason"}" ;;
		esac
	done
	listed power.inhibitor
}
