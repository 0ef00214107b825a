# The compilers that make programs for GPUs: asked as the user who is to run them.

nvcc='' shells='' glibc=''

# ask_compilers adds to $text what asks them, and sets $shells, the files that a login shell reads.
ask_compilers() {
	nvcc=$R/usr/local/cuda-$PG_CUDA/bin/nvcc
	for file in "$R"/etc/environment "$R"/etc/profile "$R"/etc/profile.d/*.sh "$R"/etc/bash.bashrc \
		"$home"/.*profile "$home"/.*shrc "$home"/.zshenv; do
		if [ -f "$file" ]; then shells=$shells$nl$file; fi
	done
	if [ "$PG_CUDA" ] && runs "$nvcc"; then text=$text$nl'a nvcc "$8" --version'; fi
	if have gcc; then text=$text$nl'a gcc gcc -dumpfullversion -dumpversion'; fi
	flags='-dumpfullversion -dumpversion'
	case ${PG_COMPILER##*/} in *clang*) flags=-dumpversion ;; esac
	if [ "$PG_COMPILER" ] && have "$PG_COMPILER"; then text=$text$nl'a compiler "$9" '$flags; fi
	if have getconf && [ ! -e "$PG_VENV/bin/python" ]; then text=$text$nl'a glibc getconf GNU_LIBC_VERSION'; fi
}

# compilers tells of them. The C library is the one that the environment's Python runs with.
compilers() {
	if [ ! "$nvcc" ]; then ask_compilers; fi
	if [ "$PG_CUDA" ] && runs "$nvcc"; then
		version_of cuda.nvcc "$nvcc" '*release *' --version
	else absent cuda.nvcc; fi
	if have gcc; then version_of cuda.gcc gcc '[0-9]*' -dumpfullversion -dumpversion
	else absent cuda.gcc; fi
	if have g++; then put cuda.gxx 1; else put cuda.gxx 0; fi
	if [ ! "$PG_COMPILER" ] || ! have "$PG_COMPILER"; then absent cuda.compiler
	else version_of cuda.compiler "$PG_COMPILER" '[0-9]*' $flags; fi
	if has grep cuda.shell; then shells; fi
	if [ "$glibc" ]; then put cuda.glibc "$glibc"
	elif has getconf cuda.glibc; then version_of cuda.glibc getconf '*' GNU_LIBC_VERSION; fi
}

# What a login shell is told of CUDA's folders: not run, since it may do anything, but read.
tells='^[^#]*(PATH|CUDA_HOME).*/cuda'
shells() {
	IFS=$nl
	set -f
	set -- $shells
	IFS=$ifs
	if [ $# != 0 ]; then answer shells 5 grep -HsE -m9 "$tells" -- "$@"; else said=''; fi
	IFS=$nl
	for row in $said; do put cuda.shell "${row#"$R"}"; done
	set +f
	IFS=$ifs
	listed cuda.shell
}

# version_of KEY PROGRAM PATTERN ARGUMENT...: the first line it prints that has that form
version_of() {
	told=$1 program=$2 pattern=$3
	shift 3
	answer ${told#*.} 10 "$program" "$@"
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
