# What dpkg says of packages, and who holds a lock of its or apt's.

# First letter of dpkg's abbreviation: "h" to be left alone. Third: "R" reinstallation required.
# Second: i installed, n and c not installed; all others (U unpacked, F half-configured, H
# half-installed, W and t triggers) are work that dpkg has not finished.
packages() {
	for tool in dpkg-query awk; do
		have "$tool" && continue
		unknown_all "$tool is not on this host" packages.installed packages.half_configured
		if [ "$PG_NVIDIA" ]; then unknown apt.package "$tool is not on this host"; fi
		return
	done
	{
		dpkg-query --admindir="$R/var/lib/dpkg" -W -f \
			'${db:Status-Abbrev}|${Package}|${binary:Package}|${Version}|${Architecture}\n'
		printf 'status|%s\n' $?
	} | PG_PACKAGES=$PG_PACKAGES PG_NVIDIA=$PG_NVIDIA native=$native awk -F '|' '
		BEGIN {
			n = split(ENVIRON["PG_PACKAGES"], names, " ")
			for (i in names) wanted[names[i]] = 1
			native = ENVIRON["native"]
			if (ENVIRON["PG_NVIDIA"]) asked = "apt.package "
		}
		{ gsub(/[^ -~]/, "?") }
		$1 == "status" { status = $2; next }
		{ unfinished = $1 ~ /^.[UHFWt]/ || $1 ~ /^..R/ }
		unfinished { print "packages.half_configured =" $3 }
		!unfinished && $1 !~ /^.i/ { next }
		!unfinished && ($2 in wanted) { print "packages.installed =" $2 " " $4 }
		asked && $2 ~ /^(nvidia|libnvidia|libcuda|cuda|libnv|firmware-nvidia|linux-(modules|objects|signatures)-nvidia|xserver-xorg-video-nvidia|libxnvctrl|libcudnn|libnccl)/ && $2 !~ /^libnv(me|pair|dimm)/ {
			name = $2
			if (native && $5 != native && $5 != "all") name = name ":" $5
			print asked "=" name " " ($4 == "" ? "?" : $4) " " ($1 ~ /^h/ ? 1 : 0) " " (1 - unfinished)
		}
		END {
			if (status == "0") tag = "."; else tag = "?dpkg-query ended with status " status
			print "packages.installed " tag
			print "packages.half_configured " tag
			if (asked) print asked tag
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

