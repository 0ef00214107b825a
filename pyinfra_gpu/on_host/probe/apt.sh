# apt: its sources, the key of the declared one, and its log of what it did.

apt() {
	if [ "$PG_REPOSITORY" ]; then put apt.repository "$PG_REPOSITORY"; else absent apt.repository; fi
	sources
	text apt.keyring "${PG_KEYRING:+"$R$PG_KEYRING"}"
	history
}

sources() {
	folder=$R/etc/apt/sources.list.d
	if [ -d "$folder" ] && { [ ! -r "$folder" ] || [ ! -x "$folder" ]; }; then
		unknown apt.source_line "no permission to look at $folder"
	fi
	for file in "$R/etc/apt/sources.list" "$folder"/*.list "$folder"/*.sources; do
		[ -f "$file" ] || continue
		if [ ! -r "$file" ]; then unknown apt.source_line "no permission to read $file"; fi
		while IFS= read -r row || [ "$row" ]; do
			case $row in '#'*) ;; *) put apt.source_line "${file#"$R"}:$row" ;; esac
		done <"$file"
	done
	listed apt.source_line
}

# The names of the packages whose history matters: NVIDIA's, compilers, kernels. A stanza is told
# as rows "DATE TIME|ACTION|NAME|VERSIONS|BY|COMMAND"; "|" and odd bytes become "?".
history() {
	if ! have awk; then unknown apt.change "awk is not on this host"; return; fi
	log=$R/var/log/apt/history.log
	if [ -e "$log" ] && [ ! -r "$log" ]; then
		unknown apt.change "no permission to read $log"
		return
	fi
	set --
	if [ -r "$log.1" ]; then set -- "$log.1"; fi
	if [ -e "$log" ]; then set -- "$@" "$log"; fi
	# The log before this one may be unreadable, or not there: what it held is then too old.
	if [ -r "$log.1.gz" ] && have gzip; then bounded 5 gzip -dc <"$log.1.gz"; fi | native=$native awk '
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
				if (name ~ /^(nvidia|libnvidia|libcuda|cuda|libnv|firmware-nvidia|linux-(modules|objects|signatures|image|headers)-|xserver-xorg-video-nvidia|libxnvctrl|libcudnn|libnccl|gcc|g\+\+|dkms)/ && name !~ /^libnv(me|pair|dimm)/)
					found[++n] = action "|" name "|" substr(items[i], p + 2)
			}
		}
		END {
			told()
			for (i = count > 200 ? count - 199 : 1; i <= count; i++) print "apt.change =" rows[i % 200]
			print "apt.change ."
		}' - "$@"
}
