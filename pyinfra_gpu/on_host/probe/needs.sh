# What every login and every program on the host is given, and what the owner needs and may not have.

needs() {
	closed
	preloaded owned.preload_problem
	owners_home
	if [ "$PG_NVIDIA" ]; then compilers; fi
	for_all
}

# closed tells what the owner may not open: shared memory, and of the driver its devices, the
# libraries that programs load, and nvidia-smi. "-w" is not true on what is mounted read-only either.
closed() {
	if [ -d "$R/dev/shm" ] && [ ! -w "$R/dev/shm" ]; then put owned.closed /dev/shm; fi
	[ ! "$PG_NVIDIA" ] || for file in "$R"/dev/nvidia[0-9]* "$R/dev/nvidiactl" "$R/dev/nvidia-uvm" \
		"$R"/usr/lib/*-linux-gnu/libcuda.so.1 "$R"/usr/lib/*-linux-gnu/libnvidia-ml.so.1 \
		"$R/usr/bin/nvidia-smi"; do
		case $file in
		*/dev/*) [ ! -e "$file" ] || { [ -r "$file" ] && [ -w "$file" ]; } ;;
		*.so.1) { [ ! -e "$file" ] && [ ! -h "$file" ]; } || [ -r "$file" ] ;;
		*) [ ! -e "$file" ] || [ -x "$file" ] ;;
		esac || put owned.closed "${file#"$R"}"
	done
	listed owned.closed
}

for_all='(CUDA|GROUP|LD|LOCAL|MASTER|NCCL|PYTHON|ROLE|TORCH|WORLD)_?[A-Z0-9_]+|RANK'
for_all="^[[:blank:]]*(export[[:blank:]]+)?($for_all)[[:blank:]=]"

# for_all tells of variables that every login gets, as "FILE NAME", and never of a value: it may be a
# secret.
for_all() {
	has grep owned.for_all || return
	answer all 5 grep -HsoE -m9 "$for_all" -- "$R"/etc/environment "$R"/etc/environment.d/*.conf \
		"$R"/etc/security/pam_env.conf "$R"/etc/profile "$R"/etc/profile.d/*.sh "$R"/etc/bash.bashrc
	IFS=$nl
	set -f
	for row in $said; do
		name=${row%?} name=${name##*[!A-Z0-9_]}
		row=${row#"$R"}
		put owned.for_all "${row%%:*} $name"
	done
	set +f
	IFS=$ifs
	listed owned.for_all
}

# preloaded KEY: what the loader says where it cannot load all that /etc/ld.so.preload names. It says
# so in front of whatever any program says.
preloaded() {
	if [ ! -s "$R/etc/ld.so.preload" ]; then absent "$1"; return; fi
	said=$(ended 5 true 2>&1)
	case $said in
	*ld.so*preload*) put "$1" "${said%%"$nl"*}" ;;
	*) absent "$1" ;;
	esac
}

# owners_home sets $home to that of who looks
owners_home() {
	home=${PG_HOME-}
	if [ ! "$home" ]; then eval "home=~$(id -un)"; fi
}

# masked KEY FILE...: which of these units somebody forbade to start, by an empty file or a link to
# /dev/null
masked() {
	about=$1
	shift
	for file do
		if [ -e "$file" ] && [ ! -s "$file" ]; then put "$about" "${file#"$R"}"; fi
	done
	listed "$about"
}
