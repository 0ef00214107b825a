# The driver: modules loaded and on disk, the library behind the linker cache, who uses the GPUs.

driver() {
	if [ ! -d "$R/sys/module" ]; then
		unknowns "/sys/module is not there" driver.loaded driver.nouveau driver.nova
	else
		if [ -d "$R/sys/module/nvidia" ]; then
			if [ -e "$R/sys/module/nvidia/version" ]; then
				line driver.loaded "$R/sys/module/nvidia/version"
			else unknown driver.loaded "the module nvidia is loaded but names no version"; fi
		else absent driver.loaded; fi
		if [ -d "$R/sys/module/nouveau" ]; then put driver.nouveau 1; else put driver.nouveau 0; fi
		if [ -d "$R/sys/module/nova_core" ]; then put driver.nova 1; else put driver.nova 0; fi
	fi
	if [ -d "$R/proc/sys" ]; then line driver.version_line "$R/proc/driver/nvidia/version"
	else unknown driver.version_line "/proc is not there"; fi
	module
	case $? in
	0)
		put driver.on_disk "$version"
		put driver.license "$license"
		;;
	1) absent driver.on_disk driver.license ;;
	*) unknowns "$reason" driver.on_disk driver.license ;;
	esac
	linker_cache && reason=
	cache_problem=$reason
	links_read -f "$cached_paths$whole"
	if [ ! "$cache_problem" ]; then
		library driver.libcuda libcuda.so.1
		library driver.libml libnvidia-ml.so.1
	else unknowns "$cache_problem" driver.libcuda driver.libml; fi
	if [ "$PG_NVIDIA" ]; then
		if [ "$rule" ]; then put driver.module "$rule"; else absent driver.module; fi
		users
		persistenced
		runfile
	fi
}

# module_rule sets $rule to "NAME FILE" where a rule of modprobe's has another module loaded in the
# place of nvidia, as packages of distributions have: "install nvidia modprobe -i nvidia-current-open".
# "alias nvidia off", by which some switch the card off, leaves nothing to load.
module_rule() {
	rule=
	for file in "$R"/etc/modprobe.d/*.conf "$R"/run/modprobe.d/*.conf "$R"/usr/lib/modprobe.d/*.conf; do
		[ -r "$file" ] || continue
		while read -r word name with rest || [ "$word" ]; do
			case $word:$name:$with in
			alias:nvidia:off) rule="nothing ${file#"$R"}"; return ;;
			install:nvidia:*) ;;
			*) continue ;;
			esac
			case $with:$rest in
			modprobe:*-i\ *) rest=${rest#*-i } rule="${rest%% *} ${file#"$R"}" ;;
			modprobe:*--ignore-install\ *)
				rest=${rest#*--ignore-install }
				rule="${rest%% *} ${file#"$R"}"
				;;
			*) rule="$with ${file#"$R"}" ;;
			esac
			return
		done <"$file"
	done
}

# module [-k KERNEL] sets $version and $license of the module that `modprobe nvidia` would load into
# that kernel; $rule as above. 1: there is none; 2: not known, and $reason says why.
module() {
	version='' license=''
	module_rule
	lacks modinfo && return 2
	case ${rule%% *} in '' | nothing | */*) name=nvidia ;; *) name=${rule%% *} ;; esac
	answer modinfo 10 modinfo "$@" "$name"
	status=$?
	if [ $status != 0 ]; then
		case $said in
		*'ermission denied'*) ;;
		*'not found'* | *'could not get modinfo'*) return 1 ;;
		esac
		why $status "$said"
		reason="modinfo: $reason"
		return 2
	fi
	while read -r name rest; do
		case $name in
		version:) version=${version:-$rest} ;;
		license:) license=${license:-$rest} ;;
		esac
	done <<-said
		$said
	said
	[ "$version" ] && return 0
	reason="modinfo finds a module nvidia without a version"
	return 2
}

# linker_cache sets $cached, the rows of ldconfig for this machine's architecture, and $cached_paths,
# the files in them that are there. It fails with a $reason.
linker_cache() {
	cached='' cached_paths=''
	lacks ldconfig && return 1
	answer ldconfig 5 ldconfig -p
	status=$?
	# One that is not there names nothing, and ldconfig makes it anew.
	case $said in *"an't open cache file"*'No such file'*) return 0 ;; esac
	if [ $status != 0 ]; then
		why $status "$said"
		reason="ldconfig: ${reason#ldconfig: }"
		return 1
	fi
	case $machine in
	x86_64) abi=x86-64 ;;
	aarch64) abi=AArch64 ;;
	*) abi= ;;
	esac
	IFS=$nl
	set -f
	for row in $said; do
		row=${row#"${row%%[!	 ]*}"}
		case $row in
		libcuda.so\ *"$abi"*' => '* | libcuda.so.1\ *"$abi"*' => '* | libnvidia-ml.so.1\ *"$abi"*' => '*)
			cached=$cached$row$nl path=${row#*=> }
			if [ -e "$path" ]; then cached_paths=$cached_paths$path$nl; fi
			;;
		esac
	done
	set +f
	IFS=$ifs
}

# library KEY NAME: the file behind the first row of that name
library() {
	path=
	while read -r name rest; do
		if [ "$name" = "$2" ]; then path=${path:-"${rest#*=> }"}; fi
	done <<-cached
		$cached
	cached
	if [ ! "$path" ]; then absent "$1"
	elif [ ! -e "$path" ]; then unknown "$1" "ldconfig names $path, which is not there"
	elif link_read "$path"; then put "$1" "$read"
	else unknown "$1" "readlink cannot resolve $path"; fi
}

# A process ends up in the list by the text of its links, which is the same inside a container.
# What vanished while find looked is not of interest; what it may not see is.
users() {
	set -- "$R"/dev/nvidia*
	if [ ! -e "$1" ]; then listed driver.user; return; fi
	has find driver.user || return
	set -- "$R"/proc/[0-9]*/fd
	answer users 10 find "$@" -maxdepth 1 -lname '/dev/nvidia*'
	status=$?
	case $said in
	*'ermission denied'*) unknown driver.user "it may not see what other users' processes have open"; return ;;
	esac
	pids=' ' bad=
	IFS=$nl
	set -f
	for row in $said; do
		case $row in
		"$R"/proc/*/fd/[0-9]*)
			pid=${row#"$R"/proc/} pid=${pid%%/*}
			case $pids in *" $pid "*) continue ;; esac
			pids="$pids$pid "
			comm=
			read -r comm <"$R/proc/$pid/comm"
			# The kernel keeps 15 characters of a name.
			case $comm in nvidia-persiste*) continue ;; esac
			put driver.user "pid $pid${comm:+" ($comm)"}"
			;;
		*'o such file'* | *'o such process'*) ;;
		*) bad=${bad:-$row} ;;
		esac
	done
	set +f
	IFS=$ifs
	if [ $status = 124 ]; then unknown driver.user "find: it did not answer in time"
	elif [ "$bad" ]; then unknown driver.user "find: ${bad#find: }"
	elif [ $status -gt 1 ]; then unknown driver.user "find ended with status $status"
	else listed driver.user; fi
}

persistenced() {
	if [ ! -d "$R/run/systemd/system" ]; then
		absent driver.persistenced driver.persistenced_enabled
		return
	fi
	has systemctl driver.persistenced driver.persistenced_enabled || return
	answer systemctl 5 systemctl show -p LoadState -p ActiveState -p UnitFileState \
		nvidia-persistenced.service
	status=$? load='' active='' enabled=''
	while IFS='=' read -r name value; do
		case $name in
		LoadState) load=$value ;;
		ActiveState) active=$value ;;
		UnitFileState) enabled=$value ;;
		esac
	done <<-said
		$said
	said
	if [ $status = 0 ] && [ "$load" = not-found ]; then
		absent driver.persistenced driver.persistenced_enabled
	elif [ $status = 0 ] && [ "$load" ] && [ "$active" ]; then
		# Somebody forbade it to start, which `enable` cannot change.
		if [ "$load" = masked ]; then active=masked; fi
		put driver.persistenced "$active"
		# A unit that was removed while it ran has a state and no file.
		if [ "$enabled" ]; then put driver.persistenced_enabled "$enabled"
		else absent driver.persistenced_enabled; fi
	else
		if [ $status = 0 ]; then reason="it named no state"; else why $status "$said"; fi
		unknowns "systemctl: $reason" driver.persistenced driver.persistenced_enabled
	fi
}

# The .run file leaves its uninstaller; a package may bring a program of that name, too.
runfile() {
	for folder in usr/bin usr/sbin usr/local/bin usr/local/sbin; do
		file=/$folder/nvidia-uninstall
		[ -e "$R$file" ] || continue
		is_packaged "$file" && continue
		put driver.runfile 1
		return
	done
	put driver.runfile 0
}

# Where DKMS keeps the certificate: as its settings say, else Ubuntu's place, else its own.
signing_key() {
	case $byte in
	'') unknown driver.mok "it is not known whether Secure Boot is on"; return ;;
	1) ;;
	*) absent driver.mok; return ;;
	esac
	key=
	for file in "$R"/etc/dkms/framework.conf "$R"/etc/dkms/framework.conf.d/*.conf; do
		[ -r "$file" ] || continue
		while read -r row || [ "$row" ]; do
			case $row in mok_certificate=*) key=${row#*=} key=${key#[\"\']} key=${key%[\"\']} ;; esac
		done <"$file"
	done
	for file in "$key" /var/lib/shim-signed/mok/MOK.der /var/lib/dkms/mok.pub; do
		if [ "$file" ] && [ -e "$R$file" ]; then key=$R$file; break; fi
	done
	if [ ! -e "$key" ] || ! have mokutil; then absent driver.mok; return; fi
	legible "$key" driver.mok || return
	# Its status differs between versions for the same answer.
	bounded ended 5 mokutil --test-key "$key"
	status=$?
	if [ "$said" ]; then put driver.mok "${said##*"$nl"}"
	else
		why $status "$said"
		unknown driver.mok "mokutil: $reason"
	fi
}
