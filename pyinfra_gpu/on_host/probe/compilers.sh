# The compilers that make programs for GPUs: asked as the user who is to run them.

compilers() {
	nvcc=$R/usr/local/cuda-$PG_CUDA/bin/nvcc
	if [ "$PG_CUDA" ] && runs "$nvcc"; then
		version_of cuda.nvcc "$nvcc" '*release *' --version
	else absent cuda.nvcc; fi
	if have gcc; then version_of cuda.gcc gcc '[0-9]*' -dumpfullversion -dumpversion
	else absent cuda.gcc; fi
	if have g++; then put cuda.gxx 1; else put cuda.gxx 0; fi
	if [ ! "$PG_COMPILER" ] || ! have "$PG_COMPILER"; then absent cuda.compiler
	else
		case ${PG_COMPILER##*/} in
		*clang*) version_of cuda.compiler "$PG_COMPILER" '[0-9]*' -dumpversion ;;
		*) version_of cuda.compiler "$PG_COMPILER" '[0-9]*' -dumpfullversion -dumpversion ;;
		esac
	fi
	shells
	if has getconf cuda.glibc; then version_of cuda.glibc getconf '*' GNU_LIBC_VERSION; fi
}

# What a login shell is told of CUDA's folders: not run, since it may do anything, but read.
shells() {
	has grep cuda.shell || return
	owners_home
	IFS=$nl
	for row in $(ended 5 grep -HsE -m9 '^[^#]*(PATH|CUDA_HOME).*/cuda' -- "$R"/etc/environment \
		"$R"/etc/profile "$R"/etc/profile.d/*.sh "$R"/etc/bash.bashrc \
		"$home"/.*profile "$home"/.*shrc "$home"/.zshenv); do
		put cuda.shell "${row#"$R"}"
	done
	IFS=$ifs
	listed cuda.shell
}

# runs FILE
runs() { [ -s "$1" ] && [ -x "$1" ]; }

# version_of KEY PROGRAM PATTERN ARGUMENT...: the first line it prints that has that form
version_of() {
	told=$1 program=$2 pattern=$3
	shift 3
	bounded ended 10 "$program" "$@"
	status=$?
	if [ $status = 0 ]; then
		reason="it said ${said%%"$nl"*}"
		while read -r row; do
			case $row in $pattern) put "$told" "$row"; return ;; esac
		done <<-said
			$said
		said
	else why $status "$said"; fi
	unknown "$told" "$program: $reason"
}
