# Apt and dpkg: what they say of packages, who holds a lock of theirs, apt's sources, the key of the
# declared one, and apt's log of what it did.

nvidias='^(nvidia|libcud(a|nn)|cuda|libnv|firmware-nvidia|linux-(modules|objects|signatures)-nvidia|xserver-xorg-video-nvidia|libxnvctrl|libnccl)'

# First letter of dpkg's abbreviation: "h" to be left alone. Third: "R" reinstallation required.
# Second: i installed, n and c not installed; all others (U unpacked, F half-configured, H
# half-installed, W and t triggers) are work that dpkg has not finished.
packages() {
	package_settings
	for tool in dpkg-query awk; do
		has $tool packages.installed packages.half_configured ${PG_NVIDIA:+nvidia.package} || return
	done
	row=$R/var/lib/dpkg/status
	if [ -e "$row" ] && [ ! -s "$row" ]; then
		unknowns "$row is empty: see /var/backups" \
			packages.installed packages.half_configured ${PG_NVIDIA:+nvidia.package}
		return
	fi
	{
		dpkg-query --admindir="$R/var/lib/dpkg" -W -f \
			'${db:Status-Abbrev}|${Package}|${binary:Package}|${Version}|${Architecture}\n'
		printf 'status|%s\n' $?
	} | PG_PACKAGES=$PG_PACKAGES PG_NVIDIA=$PG_NVIDIA native=$native \
		info="$R/var/lib/dpkg/info/" awk -v nvidias="$nvidias" -F '|' '
		BEGIN {
			n = split(ENVIRON["PG_PACKAGES"], names, " ")
			for (i in names) wanted[names[i]] = 1
			native = ENVIRON["native"]
			info = ENVIRON["info"]
			if (ENVIRON["PG_NVIDIA"]) asked = "nvidia.package "
		}
		{ gsub(/[^ -~]/, "?") }
		$1 == "status" { status = $2; next }
		{ unfinished = $1 ~ /^.[UHFWt]/ || $1 ~ /^..R/ }
		unfinished { print "packages.half_configured =" $3 }
		!unfinished && $1 !~ /^.i/ { next }
		!unfinished && ($2 in wanted) { print "packages.installed =" $2 " " $4 }
		asked && $2 ~ nvidias && $2 !~ /^libnv(me|pair|dimm)/ {
			name = $2
			if (native && $5 != native && $5 != "all") name = name ":" $5
			print asked "=" name " " ($4 == "" ? "?" : $4) " " ($1 ~ /^h/ ? 1 : 0) " " (1 - unfinished)
			# The list of its files is never empty; without it dpkg takes them for files of nobody.
			if (unfinished || (getline row < (info $3 ".list")) > 0) next
			if ((getline row < (info $2 ".list")) <= 0)
				print "nvidia.file =" name " emptied /var/lib/dpkg/info/" $3 ".list"
		}
		END {
			if (status == "0") tag = "."; else tag = "?dpkg-query ended with status " status
			print "packages.installed " tag
			print "packages.half_configured " tag
			if (asked) print asked tag
		}'
}

# What apt says where its settings cannot be read; nothing of it works then. It writes this cache
# after it has read them, so they are asked for only when one of them is newer.
package_settings() {
	cache=$R/var/cache/apt/pkgcache.bin
	for file in "$R"/etc/apt/apt.conf "$R"/etc/apt/apt.conf.d/*; do
		# Without a cache (apt-get clean) nothing is newer than it, to dash.
		[ -e "$file" ] || continue
		[ "$file" -nt "$cache" ] || [ ! -e "$cache" ] || continue
		have apt-config || break
		said=$(ended 5 apt-config ${R:+-o "Dir=$R"} dump 2>&1 >/dev/null) && break
		put packages.settings "${said%%"$nl"*}"
		return
	done
	absent packages.settings
}

# apt and dpkg take fcntl locks, which the kernel lists by device and inode.
package_lock() {
	set -f
	set --
	for file in lib/dpkg/lock-frontend lib/dpkg/lock lib/apt/lists/lock cache/apt/archives/lock; do
		if [ -e "$R/var/$file" ]; then set -- "$@" "$R/var/$file"; fi
	done
	if [ $# = 0 ]; then absent packages.lock; return; fi
	locks packages.lock || return
	IFS=$nl held=
	for row in $locks; do
		case $row in *' POSIX '* | *' OFDLCK '*) held=$held$row$nl ;; esac
	done
	IFS=$ifs
	# Whose they are is asked only where there are any.
	if [ ! "$held" ]; then absent packages.lock; return; fi
	has stat packages.lock || return
	if ! ids=$(stat -c '%d:%i' -- "$@"); then unknown packages.lock "stat cannot read $*"; return; fi
	IFS=$nl
	for row in $held; do
		IFS=$ifs
		set -- $row
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


nvidia_packages() {
	if [ "$PG_REPOSITORY" ]; then put nvidia.repository "$PG_REPOSITORY"; else absent nvidia.repository; fi
	sources
	text nvidia.keyring "${PG_KEYRING:+"$R$PG_KEYRING"}"
	history
	brought
	alternative nvidia
	alternative glx
	listed nvidia.alternative
}

sources() {
	folder=$R/etc/apt/sources.list.d
	if [ -d "$folder" ] && { [ ! -r "$folder" ] || [ ! -x "$folder" ]; }; then
		unknown nvidia.source_line "no permission to look at $folder"
	fi
	for file in "$R/etc/apt/sources.list" "$folder"/*.list "$folder"/*.sources; do
		[ -f "$file" ] || continue
		legible "$file" nvidia.source_line
		while IFS= read -r row || [ "$row" ]; do
			case $row in '#'*) ;; *) put nvidia.source_line "${file#"$R"}:$row" ;; esac
		done <"$file"
	done
	listed nvidia.source_line
}

# The names of the packages whose history matters: NVIDIA's, compilers, kernels. A stanza is told
# as rows "DATE TIME|ACTION|NAME|VERSIONS|BY|COMMAND"; "|" and odd bytes become "?".
history() {
	has awk nvidia.change || return
	log=$R/var/log/apt/history.log
	if [ -e "$log" ] && [ ! -r "$log" ]; then
		unknown nvidia.change "no permission to read $log"
		return
	fi
	set --
	if [ -r "$log.1" ]; then set -- "$log.1"; fi
	if [ -e "$log" ]; then set -- "$@" "$log"; fi
	# The log before this one may be unreadable, or not there: what it held is then too old.
	if [ -r "$log.1.gz" ] && have gzip; then ended 5 gzip -dc <"$log.1.gz"; fi | native=$native awk -v nvidias="$nvidias" '
		BEGIN { native = ENVIRON["native"] ? ENVIRON["native"] : "[a-z0-9]+" }
		function told(   i) {
			for (i = 1; i <= n; i++) {
				count++
				rows[count % 200] = when "|" found[i] "|" by "|" command
			}
			n = 0
			when = by = command = ""
		}
		{ gsub(/[^ -~]|[|]/, "?") }
		/^Start-Date: / { told(); when = substr($0, 13) }
		/^Commandline: / { command = substr($0, 14) }
		/^Requested-By: / { by = substr($0, 15) }
		/^(Install|Upgrade|Downgrade|Remove|Purge|Reinstall): / {
			action = substr($0, 1, index($0, ":") - 1)
			m = split(substr($0, length(action) + 3), items, /\),? ?/)
			for (i = 1; i <= m; i++) {
				p = index(items[i], " (")
				if (!p) continue
				name = substr(items[i], 1, p - 1)
				sub(":" native "$", "", name)
				if (name ~ nvidias "|^(linux-(image|headers)-|gcc|g[+][+]|dkms)" && name !~ /^libnv(me|pair|dimm)/)
					found[++n] = action "|" name "|" substr(items[i], p + 2)
			}
		}
		END {
			told()
			for (i = count > 200 ? count - 199 : 1; i <= count; i++) print "nvidia.change =" rows[i % 200]
			print "nvidia.change ."
		}' - "$@"
}

# What packages of the driver and the toolkit brought, and is gone or was changed: what the kernel says
# was touched after dpkg noted the package's digests, and has another one; a link in a file's place;
# what not everybody may read or run, but where dpkg-statoverride(1) says so. Configuration and links
# are not among what dpkg has digests of; documentation, dpkg may have been told to leave out.
brought() {
	info=$R/var/lib/dpkg/info
	set --
	for file in "$info"/nvidia*.md5sums "$info"/libcuda*.md5sums "$info"/libnvidia*.md5sums \
		"$info"/libnvcuvid*.md5sums "$info"/libnvoptix*.md5sums "$info"/firmware-nvidia*.md5sums \
		"$info"/linux-*-nvidia-*.md5sums "$info"/*-"${PG_CUDA%.*}-${PG_CUDA#*.}".md5sums; do
		if [ -s "$file" ]; then set -- "$@" "$file"
		elif [ -f "$file" ]; then digests_lost "$file"; fi
	done
	if lacks awk cut md5sum stat xargs; then unknown nvidia.file "$reason"; return; fi
	if [ $# = 0 ]; then listed nvidia.file; return; fi
	cd "$R/" && {
		printf '%s\n' "$@"
		cut -c35- -- "$@"
	} | alone 10 xargs -s 1000000 -d '\n' stat -c '%Z %A %n' -- | info="$info" native=$native awk '
		BEGIN {
			info = ENVIRON["info"]
			programs = "^usr/(local/cuda-[0-9.]*/)?s?bin/[^./]*$"
			while ((getline row < (info "/../diversions")) > 0) apart[row]
			while ((getline row < (info "/../statoverride")) > 0) {
				split(row, word, " ")
				mode[substr(word[4], 2)] = "-rwxr-xr-x"
			}
			for (i = 1; i < ARGC; i++)
				while ((getline row < ARGV[i]) > 0) {
					path = substr(row, 35)
					if (path ~ /^usr\/share\/(doc|man|locale|info)\// || ("/" path) in apart) continue
					of[path] = ARGV[i]
					sum[path] = substr(row, 1, 32)
				}
			ARGC = 1
		}
		{
			path = substr($0, length($1) + length($2) + 3)
			when[path] = $1
			if (!(path in mode)) mode[path] = $2
		}
		END {
			for (path in of) {
				what = "gone"
				if (path in when) {
					if (mode[path] ~ /^l/) what = "linked"
					else if (path ~ "^usr/(s?bin|lib|local)/" && mode[path] !~ /r..$/) what = "closed"
					else if (path ~ programs && mode[path] !~ /x$/) what = "closed"
					else {
						if (when[path] <= when[of[path]] || ++tried > 200) continue
						ask = "md5sum \047" path "\047"
						ask | getline row
						close(ask)
						if (substr(row, 1, 32) == sum[path]) continue
						what = "changed"
					}
				}
				name = substr(of[path], length(info) + 2)
				sub(/\.md5sums$/, "", name)
				sub(":" ENVIRON["native"] "$", "", name)
				gsub(/[^ -~]/, "?", path)
				if (n++ < 50) print "nvidia.file =" name " " what " /" path
			}
		}' "$@"
	listed nvidia.file
}

# digests_lost FILE: dpkg writes an empty list of digests only for a package that brings no file
digests_lost() {
	while read -r row; do
		case $row in /etc/* | /usr/share/doc/* | /usr/share/man/* | /usr/share/locale/*) continue ;; esac
		if [ -f "$R$row" ] && [ ! -h "$R$row" ]; then
			name=${1##*/} name=${name%.md5sums}
			put nvidia.file "${name%":$native"} emptied ${1#"$R"}"
			return
		fi
	done <"${1%.md5sums}.list"
}

# alternative NAME: a group of update-alternatives, by dpkg's own file of it. First how it is chosen,
# its link, names and links of those that follow it, an empty line; then for each choice its path,
# its priority and where those that follow lead. Those whose target is gone are another matter.
alternative() {
	group=$1 broken=-
	[ -r "$R/var/lib/dpkg/alternatives/$group" ] || return
	if ! choice=$(readlink -- "$R/etc/alternatives/$group"); then choice=-; fi
	set --
	{
		read -r mode
		read -r file
		if [ ! "$R$file" -ef "$R$choice" ]; then broken=$file; fi
		while read -r name && [ "$name" ]; do
			read -r file
			set -- "$@" "$file"
		done
		while read -r path && [ "$path" ]; do
			read -r priority
			for file do
				read -r target
				[ "$path" = "$choice" ] && [ "$target" ] && [ -e "$R$target" ] || continue
				if [ "$broken" = - ] && [ ! "$R$file" -ef "$R$target" ]; then broken=$file; fi
			done
		done
	} <"$R/var/lib/dpkg/alternatives/$group"
	put nvidia.alternative "$group $mode $choice $broken"
}

# Whether a file belongs to a package.
is_packaged() {
	for list in "$R"/var/lib/dpkg/info/*.list; do
		[ -r "$list" ] || continue
		while read -r row; do
			[ "$row" = "$1" ] && return
		done <"$list"
	done
	return 1
}
