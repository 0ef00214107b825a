# Reboot the machine, unless somebody would mind: judged and begun by one program, with no round
# trip between the two.
#
# It comes behind the functions of the look: probe/start.sh, driver.sh, power.sh and the package
# manager's. Inputs, assigned in front: PG_POLICY ("always": who is there is not asked; the package
# manager and our own commands are), PG_REASON (one line), PG_RECORD (a file in a folder that only
# root writes), PG_LOCK (the file that our own commands lock), PG_SERVICES (names of processes that
# may be ended, with blanks between).
#
# Output, in the look's format: what stands against it, and last restart.done, which is one of
# "rebooting" (and restart.boot), "busy", "again" (and restart.at: the same reason has had its
# reboot, which did not help) and "refused" (and restart.why).

PG_PACKAGES='' PG_NVIDIA='' native=''

judged() {
	if [ "$PG_POLICY" != always ]; then
		(users)
		(sessions)
		(inhibitors)
	fi
	(package_lock)
	(packages)
	(own_lock)
}

# A command of an earlier run that goes on. Looked up among the kernel's locks: the file may be in a
# folder of somebody's, and is not opened.
own_lock() {
	if [ ! -e "$R$PG_LOCK" ]; then absent restart.lock; return; fi
	if ! id=$(stat -c %i -- "$R$PG_LOCK"); then unknown restart.lock "stat cannot read $PG_LOCK"; return; fi
	locks restart.lock || return
	while read -r _ kind _ _ pid place _; do
		if [ "$kind" = FLOCK ] && [ "${place##*:}" = "$id" ]; then
			put restart.lock "pid $pid, which works on $PG_LOCK"
			return
		fi
	done <<-rows
		$locks
	rows
	absent restart.lock
}

# against ROWS sets $against, those of the rows that stand against a reboot. What was not told is
# against it, too.
against() {
	against='' told=' '
	while IFS= read -r row; do
		key=${row%% *} said=${row#* }
		told="$told$key "
		case $said in '' | . | -) continue ;; esac
		case $key in
		packages.installed) continue ;;
		driver.user)
			name=${said##*\(}
			case " $PG_SERVICES " in *" ${name%)} "*) continue ;; esac
			;;
		esac
		against="$against$row$nl"
	done <<-rows
		$1
	rows
	people='driver.user power.session power.inhibitor'
	if [ "$PG_POLICY" = always ]; then people=; fi
	for key in $people packages.lock packages.half_configured restart.lock; do
		case $told in *" $key "*) ;; *) against="$against$key ?it was not told$nl" ;; esac
	done
}

# tried sets $tried to the time of a reboot for the same reason, before this boot.
tried() {
	tried=
	[ -f "$R$PG_RECORD" ] || return
	while read -r at id reason; do
		if [ "$id" != "$boot" ] && [ "$reason" = "$PG_REASON" ]; then tried=$at; fi
	done <"$R$PG_RECORD"
}

# The last fifty are enough for a host that loses its driver every week.
note() {
	umask 022
	mkdir -p "$R${PG_RECORD%/*}" || return
	{
		if [ -f "$R$PG_RECORD" ]; then tail -n 49 "$R$PG_RECORD"; fi
		printf '%s %s %s\n' "$(date +%s)" "$boot" "$PG_REASON"
	} >"$R$PG_RECORD.new" && sync "$R$PG_RECORD.new" && mv -f "$R$PG_RECORD.new" "$R$PG_RECORD"
}

# After this connection has had its answer. `-i`: who stands against it was asked above.
begin() {
	systemd-run --quiet --collect --on-active=1 --timer-property=AccuracySec=100ms \
		systemctl reboot -i >&2 && return
	nohup sh -c 'sleep 1; systemctl reboot -i || reboot' </dev/null >&2 &
}

restart() {
	boot=
	read -r boot <"$R/proc/sys/kernel/random/boot_id"
	if [ ! "$boot" ]; then
		put restart.why "it does not tell its boot_id"
		put restart.done refused
		return
	fi
	tried
	if [ "$tried" ]; then put restart.at "$tried"; put restart.done again; return; fi
	against "$(judged)"
	if [ "$against" ]; then printf '%s' "$against"; put restart.done busy; return; fi
	if ! note; then
		put restart.why "$PG_RECORD cannot be written, and without it one reboot would follow the other"
		put restart.done refused
		return
	fi
	put restart.boot "$boot"
	put restart.done rebooting
	begin
}

printf '\npyinfra-gpu-probe 1\n'
restart
for key in driver.user power.session power.inhibitor packages.half_configured; do listed "$key"; done
printf 'pyinfra-gpu-probe end\n'
