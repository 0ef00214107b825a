# The machine: system, Secure Boot, GPUs on the bus, room on its disks.

system() {
	for file in "$R/etc/os-release" "$R/usr/lib/os-release" ''; do
		[ -r "$file" ] && break
	done
	if [ "$file" ]; then
		while read -r row || [ "$row" ]; do
			case $row in ID=* | VERSION_ID=* | PRETTY_NAME=*) put system.os "$row" ;; esac
		done <"$file"
		listed system.os
	else unknown system.os "/etc/os-release may not be read or is not there"; fi
	line system.kernel "$R/proc/sys/kernel/osrelease"
	if [ "$machine" ]; then put system.architecture "$machine"
	else unknown system.architecture "uname is not on this host"; fi
	line system.boot_id "$R/proc/sys/kernel/random/boot_id"
	line system.cpus "$R/sys/devices/system/cpu/online"
	line system.memory "$R/proc/meminfo"
	# What systemd's own sd_booted() looks at; the name of process 1 may be anything.
	if [ -d "$R/run/systemd/system" ]; then put system.init systemd
	else line system.init "$R/proc/1/comm"; fi
	line system.hostname "$R/proc/sys/kernel/hostname"
	if user=${SUDO_USER:-${DOAS_USER:-$(id -un)}} && [ "$user" ]; then put system.user "$user"
	else unknown system.user "id could not name the user"; fi
	if [ "$uid" ]; then put system.uid "$uid"; else unknown system.uid "id is not on this host"; fi
	secure_boot
	if [ "$PG_NVIDIA" ]; then signing_key; fi
	preloads
}

# programs asks all of the system's that only tell of it, at once, in the process of those concerns that
# want to know.
programs() {
	text=
	if [ "$PG_NVIDIA" ] && [ -d "$R/run/systemd/system" ] && have systemctl; then
		text='a systemctl systemctl show -p LoadState -p ActiveState -p UnitFileState nvidia-persistenced.service'
	fi
	if have python3; then text=$text$nl'a python3 python3 -V'; fi
	if have ldconfig; then text=$text$nl'a ldconfig ldconfig -p'; fi
	module_rule
	if [ ! "$rule" ] && have modinfo; then text=$text$nl'a modinfo modinfo nvidia'; fi
	set -- "$R"/dev/nvidia*
	if [ "$PG_NVIDIA" ] && [ -e "$1" ] && have find; then
		set -- "$R"/proc/[0-9]*/fd
		text=$text$nl'a users find "$@" -maxdepth 1 -lname "/dev/nvidia*"'
	fi
	if have sed; then reader=few_libraries; fi
	together 10 "$text" "$@"
	whole=
	if [ "$PG_NVIDIA" ]; then linked_libraries; fi
	if ! have python3; then absent system.python3
	elif answer python3 10 python3 -V; then put system.python3 "$said"
	else
		why $? "$said"
		unknown system.python3 "$reason"
	fi
	driver
	if [ "$PG_NVIDIA" ]; then libcuda; fi
}

# Of what ldconfig lists, the driver's libraries alone; a shell reads byte by byte.
few_libraries() {
	ulimit -v 65536
	exec sed -e "/^$mark [0-9]/q" -e '/libcuda\.so/b' -e '/libnvidia-ml\.so/b' -e '/ => /d' -e 100000q
}

# What /etc/ld.so.preload has every program load, and whether it is there: "-" where only the loader
# knows. Names end at blanks and colons, lines at "#".
preloads() {
	file=$R/etc/ld.so.preload
	if [ -s "$file" ] && legible "$file" system.preload; then
		while read -r row || [ "$row" ]; do
			IFS=$ifs:
			set -f
			for each in ${row%%#*}; do
				case $each in
				[!/]* | *'$'*) put system.preload "- $each" ;;
				*) if [ -f "$R$each" ]; then put system.preload "1 $each"; else put system.preload "0 $each"; fi ;;
				esac
			done
			set +f
			IFS=$ifs
		done <"$file"
	fi
	listed system.preload
	preloaded system.preload_problem
}

# Whether the owner's user manager outlives logins, is on and may be, and the runs of `train` in it:
# units, whose control groups the kernel has.
launcher() {
	if [ -e "$R/var/lib/systemd/linger/${owner:-$(id -un)}" ]; then put launcher.linger 1
	else put launcher.linger 0; fi
	groups=$R/sys/fs/cgroup manager=user@${number:-$uid}.service
	at=$groups/user.slice/user-${number:-$uid}.slice/$manager
	# With the first version of control groups they are elsewhere.
	if [ ! -e "$groups/cgroup.controllers" ]; then absent launcher.manager
	elif [ -d "$at" ]; then put launcher.manager 1
	else put launcher.manager 0; fi
	set --
	for file in "$R"/etc/systemd "$R"/run/systemd; do
		set -- "$@" "$file/system/user@.service" "$file/system/$manager" \
			"$file/system/systemd-logind.service" "$file/user/pyinfra-gpu-train@.service"
	done
	masked launcher.masked "$@"
	set -- "$at/app.slice/pyinfra-gpu-train@"*
	[ $# -gt 99 ] || for dir do
		if [ -d "$dir" ]; then
			dir=${dir##*@}
			put launcher.run "${dir%.service}"
		fi
	done
	listed launcher.run
}

# secure_boot_byte sets $byte: 1 on, 0 off, "none" without EFI; empty: not known, and $reason. A
# kernel that finds no SecureBoot variable under EFI takes it as off, and so do we.
secure_boot_byte() {
	efi=$R/sys/firmware/efi byte=
	if [ ! -d "$R/sys/firmware" ]; then reason="/sys/firmware is not there"
	elif [ ! -d "$efi" ]; then byte=none
	else
		set -- "$efi"/efivars/SecureBoot-*
		if [ -f "$1" ]; then
			if byte=$(od -An -v -tu1 -j4 -N1 <"$1") && [ "$byte" ]; then byte=${byte##* }
			else byte='' reason="$1 could not be read"; fi
		else
			set -- "$efi"/efivars/*
			if [ -e "$1" ]; then byte=0
			else reason="$efi/efivars is empty or may not be read"; fi
		fi
	fi
}

secure_boot() {
	secure_boot_byte
	case $byte in
	'') unknown system.secure_boot "$reason" ;;
	none) absent system.secure_boot ;;
	*) put system.secure_boot "$byte" ;;
	esac
}

# links_read OPTION PATHS reads what stands at these paths, one a line and all of them links or, with
# -f, files, by one program: to start it takes longer than to read them. link_read finds it.
links_read() {
	option=$1 all_read=$nl
	IFS=$nl
	set -f
	set -- $2
	rows='' n=0
	if [ $# -gt 1 ]; then rows=$(readlink $option -- "$@"); fi
	for row in $rows; do n=$((n + 1)); done
	if [ $n = $# ]; then
		for row in $rows; do
			all_read=$all_read$1' => '$row$nl
			shift
		done
	else
		# One of them cannot be read, or this program takes but one.
		for path do
			if row=$(readlink $option -- "$path") && [ "$row" ]; then all_read=$all_read$path' => '$row$nl; fi
		done
	fi
	set +f
	IFS=$ifs
}

# link_read PATH [READ] sets $read to what was read there, by the last links_read or by that one
link_read() {
	read=${2-$all_read}
	case $read in
	*"$nl$1 => "*) read=${read#*"$nl$1 => "} read=${read%%"$nl"*} ;;
	*) return 1 ;;
	esac
}

gpus() {
	if [ ! -d "$R/sys/bus/pci/devices" ]; then
		if [ -d "$R/sys/bus" ]; then listed gpus.device
		else unknown gpus.device "/sys/bus is not there"; fi
		return
	fi
	for dev in "$R"/sys/bus/pci/devices/*; do
		vendor=
		read -r vendor <"$dev/vendor"
		[ "$vendor" = 0x10de ] || continue
		class='' device='' bars='' driver=-
		if ! read -r class <"$dev/class" || ! read -r device <"$dev/device"; then
			unknown gpus.device "$dev could not be read"
			continue
		fi
		case $class in 0x0300* | 0x0302*) ;; *) continue ;; esac
		if [ -h "$dev/driver" ]; then
			# A shell reads a link to a folder by going there.
			if cd -P "$dev/driver"; then driver=$PWD; else driver=$(readlink -- "$dev/driver"); fi
			driver=${driver##*/}
		fi
		if [ -r "$dev/resource" ]; then
			while read -r from to rest; do bars="$bars $from-$to"; done <"$dev/resource"
		fi
		put gpus.device "${dev##*/} $vendor $device $class ${driver:-?}${bars:- ?}"
	done
	listed gpus.device
}

storage() {
	kind_of "$PG_PREFIX"
	near=$PG_PREFIX
	if [ "$theirs" ] && ! root_only "${PG_PREFIX%/*}"; then near=${open%/*}; fi
	while [ ! -e "$near" ] && [ "$near" ]; do near=${near%/*}; done
	if [ "$kind" = hidden ]; then
		unknown storage.free "no permission to look at $PG_PREFIX"
		near=
	else near=${near:-/}; fi
	shm=$R/dev/shm usr='' var='' boot=''
	if [ ! -d "$shm" ]; then shm=; absent storage.shm; fi
	if [ "$PG_NVIDIA" ]; then
		usr=$R/usr var=$R/var large=0
		if [ -d "$R/boot" ]; then boot=$R/boot; else absent storage.boot; fi
		for file in "$R"/boot/initrd.img-*; do
			row_of "$file"
			case $row in *' 8'*) ;; *) size=$(stat -L -c %s -- "$file") ;; esac
			if [ "${size:-0}" -gt $large ]; then large=$size; fi
		done
		put storage.initrd $large
	else absent storage.usr storage.var storage.boot; fi
	rooms ${near:+storage.free "$near"} ${shm:+storage.shm "$shm"} \
		${usr:+storage.usr "$usr"} ${var:+storage.var "$var"} ${boot:+storage.boot "$boot"}
	set -- / /etc /usr /var
	if [ "$PG_OWNER" = - ]; then set -- && boot=; fi
	if [ -r "$R/proc/self/mounts" ] && mounts=$(cat "$R/proc/self/mounts") && [ "$mounts" ]; then
		mounted_above "$PG_PREFIX" "$PG_VENV" "$PG_BUILD" "$PG_TRAINING" "$@" ${boot:+/boot}
		mounted storage.noexec noexec "$PG_PREFIX" "$PG_VENV" ${PG_BUILD:+"$PG_BUILD"}
		set -- "$PG_PREFIX" "$PG_VENV" ${PG_BUILD:+"$PG_BUILD"} ${PG_TRAINING:+"$PG_TRAINING"} "$@"
		mounted storage.volatile memory "$@"
		mounted storage.readonly ro "$@" ${boot:+/boot}
	else unknowns "/proc/self/mounts may not be read" storage.noexec storage.readonly storage.volatile; fi
}

# mounted_above PATH... leaves of $mounts those that are above one of them.
mounted_above() {
	IFS=$nl
	set -f
	asked=$nl$*$nl rows=$mounts mounts=''
	for path do asked=$asked$path/$nl; done
	for row in $rows; do
		each=${row#* } each=${each%% *}
		case $asked in *"$nl${each%/}/"*) mounts=$mounts$row$nl ;; esac
	done
	set +f
	IFS=$ifs
}

# mounted KEY OPTION PATH...: where the first of their file systems that has the option is mounted, by
# $mounts; "memory" counts as an option of what a reboot empties. A shell reads a file byte by byte,
# so that is for a program, and once.
mounted() {
	key=$1 option=$2
	shift 2
	IFS=$nl
	set -f
	for path do
		longest='' how=
		for row in $mounts; do
			row=${row#* } place=${row%% *}
			# By a name of its own: as a pattern, bash takes "${place%/}"/* of "/" for another.
			above=${place%/}
			case $path/ in
			"$above"/*)
				if [ ${#place} -ge ${#longest} ]; then
					longest=$place row=${row#* } how=${row%% *} row=${row#* }
					case $how in tmpfs | ramfs | rootfs) how=memory ;; esac
					how=$how,${row%% *}
				fi
				;;
			esac
		done
		case ,$how, in *",$option,"*) break ;; esac
		longest=
	done
	set +f
	IFS=$ifs
	if [ "$longest" ]; then put "$key" "$longest"; else absent "$key"; fi
}

# rooms [KEY FOLDER]...: df's line for each, in KiB. All at once; where that fails each alone, since
# one that hangs must not hide the others.
rooms() {
	if [ $# = 0 ]; then listed storage.inodes; return; fi
	keys='' n=$#
	while [ $n -gt 0 ]; do
		keys="$keys$1 "
		set -- "$@" "$2"
		shift 2
		n=$((n - 2))
	done
	has df $keys storage.inodes || return
	if said=$(alone 8 df -Pk -- "$@"); then
		for key in $keys; do
			said=${said#*"$nl"}
			put "$key" "${said%%"$nl"*}"
		done
		inodes
		return
	fi
	for key in $keys; do
		if said=$(alone 8 df -Pk -- "$1" 2>&1); then put "$key" "${said##*"$nl"}"
		else
			why $? "$said"
			unknown "$key" "df: $reason"
		fi
		shift
	done
	unknown storage.inodes "df did not tell of all file systems"
}

# inodes tells how many the file systems have that are written to, and how many of them are free; it
# is asked where df has answered, so none of them hangs.
inodes() {
	names=${near:+$PG_PREFIX$nl}${usr:+/usr$nl/var$nl}
	set -- ${near:+"$near"} ${usr:+"$usr" "$var"}
	if [ $# != 0 ]; then
		has stat storage.inodes || return
		if ! said=$(alone 8 stat -f -c '%c %d' -- "$@"); then
			unknown storage.inodes "stat cannot read it here"
			return
		fi
		IFS=$nl
		for row in $said; do
			put storage.inodes "$row ${names%%"$nl"*}"
			names=${names#*"$nl"}
		done
		IFS=$ifs
	fi
	listed storage.inodes
}

