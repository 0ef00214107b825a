# The one look at a host. POSIX sh (dash, busybox sh, bash); writes nothing, contends for no lock.
#
# Inputs, assigned in front of this text: PG_PREFIX PG_VENV PG_UV PG_ENV_FILE PG_TRAINING
# PG_REQUIREMENTS PG_TRAINING_STAMP PG_STAMP PG_VERDICT (absolute paths, or empty: not asked),
# PG_PATHS (absolute paths, one a line), PG_PACKAGES (names with blanks between).
# PG_ROOT puts another tree in the place of / for what the system says of itself;
# PG_SBIN replaces what is added to PATH.
#
# Output: ASCII lines "KEY TAGVALUE" between a first and a last marker line. The tags:
#   =text   the value            x6869  the value's bytes in hex (anything that is not plain ASCII)
#   -       it is not there      .      the list of this key is complete
#   ?text   not known, and why   !6869  the same in hex
# A list is a key that comes several times. A line without the last marker may be cut in two.

LC_ALL=C
export LC_ALL
exec 2>/dev/null </dev/null
PATH=$PATH${PG_SBIN-:/usr/local/sbin:/usr/sbin:/sbin}
R=${PG_ROOT-}
nl='
'
ifs=" 	$nl"
IFS=$ifs

have() { command -v "$1" >/dev/null; }

# emit KEY TAG HEXTAG VALUE
emit() {
	case $4 in
	*[!\ -~]* | ' '* | *' ')
		hex=$(printf %s "$4" | od -An -v -tx1)
		if [ "$hex" ]; then
			key=$1 tag=$3 old=$IFS IFS=$ifs
			set -- $hex
			IFS=
			printf '%s %s%s\n' "$key" "$tag" "$*"
			IFS=$old
		else
			printf '%s ?it holds odd bytes, and od, which would print them, does not work here\n' "$1"
		fi
		;;
	*) printf '%s %s%s\n' "$1" "$2" "$4" ;;
	esac
}
put() { emit "$1" = x "$2"; }
unknown() { emit "$1" '?' '!' "$2"; }
absent() { printf '%s -\n' "$@"; }
listed() { printf '%s .\n' "$@"; }

# unknown_all REASON KEY...
unknown_all() {
	reason=$1
	shift
	for each do unknown "$each" "$reason"; done
}

# kind_of PATH sets $kind. "hidden": a folder above it may not be searched, so nobody can say.
kind_of() {
	if [ -h "$1" ]; then kind=link
	elif [ -f "$1" ]; then kind=file
	elif [ -d "$1" ]; then kind=dir
	elif [ -e "$1" ]; then kind=other
	else
		kind=absent up=$1
		while up=${up%/*} && [ "$up" ]; do
			if [ -e "$up" ]; then
				if [ -d "$up" ] && [ ! -x "$up" ]; then kind=hidden; fi
				break
			fi
		done
	fi
}

# line KEY FILE: the first line of a file of the kernel's
line() {
	value=
	if [ ! -e "$2" ]; then absent "$1"
	elif read -r value <"$2" || [ "$value" ]; then put "$1" "$value"
	else unknown "$1" "$2 is empty or may not be read"; fi
}

# text KEY FILE: a whole file, one byte more than the reader accepts, so that it sees an excess
text() {
	if [ ! "$2" ]; then absent "$1"; return; fi
	kind_of "$2"
	if [ ! -f "$2" ]; then
		case $kind in
		hidden) unknown "$1" "no permission to look at $2" ;;
		link) unknown "$1" "$2 is a link to something that cannot be read" ;;
		*) absent "$1" ;;
		esac
	elif [ ! -r "$2" ]; then unknown "$1" "no permission to read $2"
	elif ! have od; then unknown "$1" "od is not on this host"
	elif hex=$(od -An -v -tx1 -N 65537 <"$2"); then
		key=$1
		set -- $hex
		IFS=
		printf '%s x%s\n' "$key" "$*"
		IFS=$ifs
	else unknown "$1" "$2 could not be read"; fi
}

# digest KEY FILE
digest() {
	if [ ! "$2" ]; then absent "$1"; return; fi
	kind_of "$2"
	if [ "$kind" = hidden ]; then unknown "$1" "no permission to look at $2"
	elif [ ! -f "$2" ]; then absent "$1"
	elif [ ! -r "$2" ]; then unknown "$1" "no permission to read $2"
	elif ! have sha256sum; then unknown "$1" "sha256sum is not on this host"
	elif sum=$(sha256sum <"$2"); then put "$1" "${sum%% *}"
	else unknown "$1" "$2 could not be read"; fi
}

# bounded SECONDS COMMAND...: what can hang (a dead file server, a broken program) is given up
limit=
if timeout 5 true; then limit=timeout; fi
bounded() {
	if [ "$limit" ]; then "$limit" "$@"; else
		shift
		"$@"
	fi
}

# why STATUS OUTPUT sets $reason
why() {
	case $1 in
	124 | 137 | 143) reason="it did not answer in time" ;;
	*) reason=${2%%"$nl"*} reason=${reason:-"it ended with status $1 and said nothing"} ;;
	esac
}

# as_owner FOLDER sets $drop, the words that run a command as the folder's owner: root must not
# run a program, or git in a repository, that a user can change. If it cannot, $reason says why.
as_owner() {
	drop=
	case $uid in 0 | '') ;; *) return 0 ;; esac
	if ! have stat; then reason="stat is not on this host"; return 1; fi
	ids=$(stat -L -c %u:%g -- "$1")
	case $ids in 0:*) return 0 ;; esac
	drop="setpriv --reuid=${ids%:*} --regid=${ids#*:} --clear-groups --"
	$drop true && return 0
	drop="chroot --userspec=$ids --groups= /"
	$drop true && return 0
	reason="neither setpriv nor chroot on this host can run it as the owner of $1"
	return 1
}

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
	if ! have python3; then absent system.python3
	else
		if said=$(bounded 10 python3 -V 2>&1); then put system.python3 "$said"
		else
			why $? "$said"
			unknown system.python3 "$reason"
		fi
	fi
	secure_boot
}

# A kernel that finds no SecureBoot variable under EFI takes it as off, and so do we.
secure_boot() {
	efi=$R/sys/firmware/efi
	if [ ! -d "$R/sys/firmware" ]; then unknown system.secure_boot "/sys/firmware is not there"
	elif [ ! -d "$efi" ]; then absent system.secure_boot
	else
		set -- "$efi"/efivars/SecureBoot-*
		if [ -f "$1" ]; then
			if byte=$(od -An -v -tu1 -j4 -N1 <"$1") && [ "$byte" ]; then
				put system.secure_boot "${byte##* }"
			else unknown system.secure_boot "$1 could not be read"; fi
		else
			set -- "$efi"/efivars/*
			if [ -e "$1" ]; then put system.secure_boot 0
			else unknown system.secure_boot "$efi/efivars is empty or may not be read"; fi
		fi
	fi
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
			driver=$(readlink "$dev/driver")
			driver=${driver##*/}
		fi
		if [ -r "$dev/resource" ]; then
			while read -r from to rest; do bars="$bars $from-$to"; done <"$dev/resource"
		fi
		put gpus.device "${dev##*/} $vendor $device $class ${driver:-?}${bars:- ?}"
	done
	listed gpus.device
}

driver() {
	if [ ! -d "$R/sys/module" ]; then
		unknown_all "/sys/module is not there" driver.loaded driver.nouveau
	else
		if [ -d "$R/sys/module/nvidia" ]; then
			if [ -e "$R/sys/module/nvidia/version" ]; then
				line driver.loaded "$R/sys/module/nvidia/version"
			else unknown driver.loaded "the module nvidia is loaded but names no version"; fi
		else absent driver.loaded; fi
		if [ -d "$R/sys/module/nouveau" ]; then put driver.nouveau 1; else put driver.nouveau 0; fi
	fi
	if [ -d "$R/proc/sys" ]; then line driver.version_line "$R/proc/driver/nvidia/version"
	else unknown driver.version_line "/proc is not there"; fi
	if ! have modinfo; then unknown driver.on_disk "modinfo is not on this host"
	elif said=$(bounded 10 modinfo -F version nvidia 2>&1); then
		if [ "$said" ]; then put driver.on_disk "$said"
		else unknown driver.on_disk "modinfo finds a module nvidia without a version"; fi
	else
		why $? "$said"
		case $reason in *'not found'*) absent driver.on_disk ;;
		*) unknown driver.on_disk "modinfo: $reason" ;; esac
	fi
	libcuda
}

libcuda() {
	if ! have ldconfig; then unknown driver.libcuda "ldconfig is not on this host"; return; fi
	if ! have sed; then unknown driver.libcuda "sed is not on this host"; return; fi
	said=$(ldconfig -p 2>&1)
	status=$?
	if [ $status != 0 ]; then
		why $status "$said"
		unknown driver.libcuda "ldconfig: ${reason#ldconfig: }"
		return
	fi
	found=$(printf '%s\n' "$said" | sed -n -e '/^[[:blank:]]*libcuda\.so\.1 /p')
	case $machine in
	x86_64) abi=x86-64 ;;
	aarch64) abi=AArch64 ;;
	*) abi= ;;
	esac
	IFS=$nl
	set -f
	set -- $found
	set +f
	IFS=$ifs
	path=
	for row do
		case $row in *"$abi"*" => "*) path=${path:-"${row#* => }"} ;; esac
	done
	if [ ! "$path" ]; then absent driver.libcuda
	elif [ ! -e "$path" ]; then unknown driver.libcuda "ldconfig names $path, which is not there"
	elif real=$(readlink -f -- "$path") && [ "$real" ]; then put driver.libcuda "$real"
	else unknown driver.libcuda "readlink cannot resolve $path"; fi
}

# Third letter of dpkg's abbreviation: "R" reinstallation required. Second: i installed, n and c
# not installed; all others (U unpacked, F half-configured, H half-installed, W and t triggers)
# are work that dpkg has not finished.
packages() {
	for tool in dpkg-query awk; do
		have "$tool" && continue
		unknown_all "$tool is not on this host" packages.installed packages.half_configured
		return
	done
	{
		dpkg-query --admindir="$R/var/lib/dpkg" -W \
			-f '${db:Status-Abbrev}|${Package}|${binary:Package}|${Version}\n'
		printf 'status|%s\n' $?
	} | PG_PACKAGES=$PG_PACKAGES awk -F '|' '
		BEGIN { n = split(ENVIRON["PG_PACKAGES"], names, " "); for (i in names) wanted[names[i]] = 1 }
		{ gsub(/[^ -~]/, "?") }
		$1 == "status" { status = $2; next }
		$1 ~ /^.[UHFWt]/ || $1 ~ /^..R/ { print "packages.half_configured =" $3; next }
		$1 ~ /^.i/ && ($2 in wanted) { print "packages.installed =" $2 " " $4 }
		END {
			if (status == "0") tag = "."; else tag = "?dpkg-query ended with status " status
			print "packages.installed " tag
			print "packages.half_configured " tag
		}'
}

# apt and dpkg take fcntl locks, which the kernel lists by device and inode.
apt_lock() {
	set -f
	set --
	for file in lib/dpkg/lock-frontend lib/dpkg/lock lib/apt/lists/lock cache/apt/archives/lock; do
		if [ -e "$R/var/$file" ]; then set -- "$@" "$R/var/$file"; fi
	done
	if [ $# = 0 ]; then absent packages.lock; return; fi
	for tool in stat sed; do
		have "$tool" && continue
		unknown packages.lock "$tool is not on this host"
		return
	done
	if [ ! -r "$R/proc/locks" ]; then unknown packages.lock "/proc/locks may not be read"; return; fi
	if ! ids=$(stat -c '%d:%i' -- "$@"); then unknown packages.lock "stat cannot read $*"; return; fi
	find=
	for id in $ids; do find="$find -e /:${id#*:}[[:blank:]]/p"; done
	held=$(sed -n $find "$R/proc/locks")
	IFS=$nl
	for row in $held; do
		IFS=$ifs
		set -- $row
		case $2 in POSIX | OFDLCK) ;; *) continue ;; esac
		for id in $ids; do
			case $6 in *:"${id#*:}") ;; *) continue ;; esac
			dev=${id%:*}
			major=$(((dev >> 8) & 4095)) minor=$(((dev & 255) | ((dev >> 12) & 1048320)))
			# Some file systems (btrfs, overlays) show the kernel another device number.
			if [ "${6%:*}" != "$(printf '%02x:%02x' $major $minor)" ]; then
				case $(ls -l "$R/proc/$5/fd/") in
				*/var/lib/dpkg/lock* | */var/lib/apt/lists/lock* | */var/cache/apt/archives/lock*) ;;
				*) continue ;;
				esac
			fi
			comm=
			read -r comm <"$R/proc/$5/comm"
			put packages.lock "pid $5${comm:+" ($comm)"}"
			return
		done
	done
	IFS=$ifs
	absent packages.lock
}

storage() {
	kind_of "$PG_PREFIX"
	near=$PG_PREFIX
	while [ ! -e "$near" ] && [ "$near" ]; do near=${near%/*}; done
	if [ "$kind" = hidden ]; then unknown storage.free "no permission to look at $PG_PREFIX"
	else room storage.free "${near:-/}"; fi
	if [ -d "$R/dev/shm" ]; then room storage.shm "$R/dev/shm"; else absent storage.shm; fi
}

# room KEY FOLDER: df's line for it, in KiB
room() {
	if ! have df; then unknown "$1" "df is not on this host"
	elif said=$(df -Pk -- "$2" 2>&1); then put "$1" "${said##*"$nl"}"
	else
		why $? "$said"
		unknown "$1" "df: $reason"
	fi
}

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
	[ $# = 0 ] || for row in $(stat -c '%f %u %U %s %n' -- "$@"); do
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
		for row in $(sha256sum -- $files); do put layout.sha256 "$row"; done
		listed layout.sha256
	fi
}

# torch is never imported: its identity is text, and its files are compared with their list of sizes.
torch() {
	kind_of "$PG_VENV"
	if [ "$kind" = hidden ]; then
		unknown_all "no permission to look at $PG_VENV" torch.python torch.python_problem \
			torch.installing torch.version_line torch.distribution torch.damaged
	elif [ ! -d "$PG_VENV" ]; then
		absent torch.python torch.python_problem
		put torch.installing 0
		listed torch.version_line torch.distribution torch.damaged
	elif [ ! -r "$PG_VENV" ] || [ ! -x "$PG_VENV" ]; then
		unknown_all "no permission to read $PG_VENV" torch.python torch.python_problem \
			torch.installing torch.version_line torch.distribution torch.damaged
	else
		if [ -e "$PG_VENV/.pyinfra-gpu-installing" ]; then put torch.installing 1
		else put torch.installing 0; fi
		site=
		venv_python
		installed
	fi
	tool_version torch.uv "$PG_UV"
}

check='
import os, sys, time
def say(key, value):
    raw = os.fsencode(value)
    plain = value == value.strip() and all(32 <= byte < 127 for byte in raw)
    print("torch.%s %s" % (key, "=" + value if plain else "x" + raw.hex()))
def check(site):
    os.chdir(site)
    records = [n for n in os.listdir() if n.lower().startswith("torch-") and n.endswith(".dist-info")]
    bad = []
    if not records and os.path.isdir("torch"):
        bad.append("torch-*.dist-info/RECORD")
    end = time.monotonic() + 5
    for record in records:
        try:
            if not compare(record + "/RECORD", bad, end):
                bad.append(record + "/RECORD")
        except (FileNotFoundError, NotADirectoryError, ValueError):
            bad.append(record + "/RECORD")
    return bad[:5]
def compare(record, bad, end):
    whole = False
    with open(record, "rb") as rows:
        for number, row in enumerate(rows):
            parts = row.rstrip().rsplit(b",", 2)
            whole = whole or parts[0] == os.fsencode(record)
            if len(parts) < 3 or not parts[2]:
                continue
            path = parts[0]
            if path[:1] == b"\"":
                path = path[1:-1].replace(b"\"\"", b"\"")
            try:
                same = os.stat(path).st_size == int(parts[2])
            except (FileNotFoundError, NotADirectoryError):
                same = False
            if not same:
                bad.append(os.fsdecode(path))
                if len(bad) > 4:
                    return True
            if not number % 1024 and time.monotonic() > end:
                raise OSError("its files could not be compared in 5 s")
    return whole
say("python", sys.version.split()[0])
site = "%s/lib/python%d.%d%s/site-packages" % (
    sys.argv[1], sys.version_info[0], sys.version_info[1], "t" if "t" in sys.abiflags else "")
say("site", site)
try:
    for path in check(site) if os.path.isdir(site) else []:
        say("damaged", path)
    print("torch.damaged .")
except OSError as error:
    print("torch.damaged !" + os.fsencode(str(error)).hex())
'

# A user can change what it prints, so only whole, plain lines of the expected keys pass.
venv_python() {
	python=$PG_VENV/bin/python
	if [ -h "$python" ] && [ ! -e "$python" ]; then
		no_python "$python is a link to $(readlink "$python"), which is not there"
		return
	elif [ ! -e "$python" ]; then no_python "$python is not there"; return
	elif ! as_owner "$PG_VENV"; then
		no_python "$reason"
		return
	fi
	said=$(bounded 20 $drop "$python" -I -S -B -c "$check" "$PG_VENV" 2>&1)
	status=$?
	if [ $status != 0 ]; then
		why $status "${said#torch.*"$nl"}"
		no_python "$reason"
		return
	fi
	absent torch.python_problem
	IFS=$nl
	set -f
	for row in $said; do
		case $row in
		*[!\ -~]*) ;;
		torch.site\ =*) site=${row#torch.site =} ;;
		torch.python\ [=x]* | torch.damaged\ [.=!x]*) printf '%s\n' "$row" ;;
		esac
	done
	set +f
	IFS=$ifs
}

no_python() {
	unknown torch.python "$1"
	put torch.python_problem "$1"
	unknown torch.damaged "the environment's python does not run, so torch's files were not compared"
}

# The names of the folders of installed distributions, and the lines of torch's own version file.
installed() {
	case $site in "$PG_VENV"/lib/*) ;; *) site= ;; esac
	if [ ! "$site" ]; then
		for site in "$PG_VENV"/lib/python3*/site-packages; do :; done
	fi
	if [ -d "$site" ] && { [ ! -r "$site" ] || [ ! -x "$site" ]; }; then
		unknown_all "no permission to read $site" torch.distribution torch.version_line
		return
	fi
	for info in "$site"/*.dist-info; do
		if [ -d "$info" ]; then put torch.distribution "${info##*/}"; fi
	done
	listed torch.distribution
	file=$site/torch/version.py
	kind_of "$file"
	if [ "$kind" = hidden ] || { [ -f "$file" ] && [ ! -r "$file" ]; }; then
		unknown torch.version_line "no permission to read $file"
		return
	elif [ -f "$file" ]; then
		n=0
		while [ $n -lt 100 ] && { IFS= read -r row || [ "$row" ]; }; do
			n=$((n + 1))
			case $row in
			__version__* | cuda* | git_version*) put torch.version_line "$row" ;;
			esac
		done <"$file"
	fi
	listed torch.version_line
}

# tool_version KEY PROGRAM
tool_version() {
	kind_of "$2"
	if [ "$kind" = hidden ]; then unknown "$1" "no permission to look at $2"
	elif [ ! -f "$2" ]; then absent "$1"
	elif ! as_owner "${2%/*}"; then unknown "$1" "$reason"
	elif said=$(bounded 10 $drop "$2" --version 2>&1); then put "$1" "${said%%"$nl"*}"
	else
		why $? "$said"
		unknown "$1" "$2: $reason"
	fi
}

training() {
	digest training.requirements "$PG_REQUIREMENTS"
	text training.stamp "$PG_TRAINING_STAMP"
	kind=absent
	if [ "$PG_TRAINING" ]; then kind_of "$PG_TRAINING/.git"; fi
	if [ "$kind" = absent ]; then
		absent training.commit training.remote
		put training.dirty_count 0
		listed training.dirty
		return
	fi
	if [ "$kind" = hidden ]; then reason="no permission to look at $PG_TRAINING"
	elif ! have git; then reason="git is not on this host"
	elif as_owner "$PG_TRAINING"; then
		repository && return
		reason="git: $reason"
	fi
	unknown_all "$reason" training.commit training.remote training.dirty training.dirty_count
}

# Nothing but the repository's own settings counts, nothing of it is executed, nothing is fetched.
in_repository() {
	bounded 20 $drop git --no-optional-locks -c "safe.directory=$PG_TRAINING" -c core.fsmonitor=false \
		-c core.untrackedCache=false -c core.hooksPath=/dev/null -c core.quotePath=true \
		-c protocol.allow=never -C "$PG_TRAINING" --git-dir=.git --work-tree=. "$@" 2>&1
}

repository() {
	unset GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_NAMESPACE \
		GIT_COMMON_DIR GIT_CONFIG GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GIT_TRACE
	export GIT_OPTIONAL_LOCKS=0 GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null \
		GIT_NO_LAZY_FETCH=1 GIT_TERMINAL_PROMPT=0 HOME=/nonexistent XDG_CONFIG_HOME=/nonexistent
	said=$(in_repository status --porcelain=v2 --branch --untracked-files=normal)
	status=$?
	if [ $status != 0 ]; then
		why $status "$said"
		return 1
	fi
	n=0
	IFS=$nl
	set -f
	for row in $said; do
		case $row in
		'# branch.oid ('*) absent training.commit ;;
		'# branch.oid '*) put training.commit "${row#\# branch.oid }" ;;
		[12u?]\ *)
			n=$((n + 1))
			if [ $n -le 20 ]; then put training.dirty "$row"; fi
			;;
		esac
	done
	set +f
	IFS=$ifs
	put training.dirty_count $n
	listed training.dirty
	url=$(in_repository config --get remote.origin.url)
	case $? in
	0) put training.remote "$url" ;;
	1) absent training.remote ;;
	*) unknown training.remote "git: $url" ;;
	esac
}

uid=
while read -r name real rest; do
	if [ "$name" = Uid: ]; then uid=$real; fi
done </proc/self/status
uid=${uid:-$(id -u)}
machine=$(uname -m)

printf 'pyinfra-gpu-probe 1\n'
# Each concern in a process of its own: whatever goes wrong in one, the others are told.
(system)
(gpus)
(driver)
(packages)
(apt_lock)
(storage)
(layout)
(torch)
(text environment.text "$PG_ENV_FILE")
(training)
(text smoke.stamp "$PG_STAMP"; text smoke.verdict "$PG_VERDICT")
printf 'pyinfra-gpu-probe end\n'
exit 0
