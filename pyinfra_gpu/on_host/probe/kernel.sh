# The installed kernels, and what the newest of them has of the driver.

kernel() {
	for file in "$R"/var/lib/dkms/nvidia*/*/source/dkms.conf; do
		file=${file%/source/dkms.conf}
		if [ "${file##*/}" != '*' ]; then put kernel.source "${file##*/}"; fi
	done
	listed kernel.source
	running=
	read -r running <"$R/proc/sys/kernel/osrelease"
	newest=$running
	if [ -d "$R/boot" ] && { [ ! -r "$R/boot" ] || [ ! -x "$R/boot" ]; }; then
		reason="no permission to look at /boot"
	else kernels; fi
	if [ "$reason" ]; then
		unknowns "$reason" kernel.installed kernel.module kernel.headers kernel.initramfs
		return
	fi
	if [ "$newest" = "$running" ]; then listed kernel.module
	else
		module -k "$newest"
		case $? in
		0) put kernel.module "$newest $version" ;;
		1) put kernel.module "$newest -" ;;
		*) unknown kernel.module "$reason" ;;
		esac
		listed kernel.module
		headers "$newest"
	fi
	headers "$running"
	listed kernel.headers
	initramfs
}

# kernels lists them and sets $newest, or a $reason. One without a name of its own cannot be told
# from a file that a package manager is still unpacking.
kernels() {
	reason=
	set --
	for file in "$R"/boot/vmlinuz-*; do
		case $file in *'*' | *.dpkg-* | *.old | *.bak | *~) ;; *) set -- "$@" "${file##*/vmlinuz-}" ;; esac
	done
	if [ $# -gt 1 ]; then
		lacks sort && return
		rows=$(printf '%s\n' "$@" | sort -V) || rows=
		if [ ! "$rows" ]; then reason="sort cannot order versions here"; return; fi
		IFS=$nl
		set -f
		set -- $rows
		set +f
		IFS=$ifs
	fi
	for newest do put kernel.installed "$newest"; done
	listed kernel.installed
}

# headers KERNEL
headers() {
	if [ -e "$R/lib/modules/$1/build/Makefile" ]; then put kernel.headers "$1 1"
	else put kernel.headers "$1 0"; fi
}

# A rule against the free drivers works at boot only from inside the initramfs.
initramfs() {
	image=$R/boot/initrd.img-$newest
	if [ ! -e "$image" ]; then put kernel.initramfs absent; return; fi
	for file in "$R"/etc/modprobe.d/*.conf; do
		[ "$file" -nt "$image" ] || continue
		case $file in */pyinfra-gpu-*) put kernel.initramfs stale; return ;; esac
		legible "$file" kernel.initramfs || return
		while read -r word name rest || [ "$word" ]; do
			case $word:$name in
			blacklist:nouveau | blacklist:nova | blacklist:nova[_-]*) put kernel.initramfs stale; return ;;
			esac
		done <"$file"
	done
	put kernel.initramfs fresh
}
