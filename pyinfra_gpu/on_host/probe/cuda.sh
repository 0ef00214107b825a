# CUDA toolkits and the compilers that build for them.

cuda() {
	for folder in "$R"/usr/local/cuda-[0-9]*.[0-9]*; do
		if [ -d "$folder" ]; then put cuda.toolkit "${folder##*/cuda-}"; fi
	done
	listed cuda.toolkit
	declared=
	if [ "$PG_CUDA" ]; then
		declared=$R/usr/local/cuda-$PG_CUDA
		# What a power cut left without contents is as good as missing.
		for file in bin/nvcc bin/ptxas nvvm/bin/cicc include/cuda_runtime.h lib64/libcudart.so; do
			case $file in
			*bin/*) if runs "$declared/$file"; then continue; fi ;;
			*) if [ -s "$declared/$file" ]; then continue; fi ;;
			esac
			put cuda.missing "$file"
		done
	fi
	listed cuda.missing
	if [ "$PG_CUDA" ] && runs "$declared/bin/nvcc"; then
		version_of cuda.nvcc "$declared/bin/nvcc" '*release *' --version
	else absent cuda.nvcc; fi
	plain_path
	login_nvcc
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
	if ! have getconf; then unknown cuda.glibc "getconf is not on this host"
	else version_of cuda.glibc getconf '*' GNU_LIBC_VERSION; fi
	text cuda.proof "$PG_CUDA_PROOF"
}

# runs FILE
runs() { [ -s "$1" ] && [ -x "$1" ]; }

# version_of KEY PROGRAM PATTERN ARGUMENT...: the first line it prints that has that form
version_of() {
	told=$1 program=$2 pattern=$3
	shift 3
	found=$(command -v "$program")
	if ! as_owner "${found%/*}"; then unknown "$told" "$reason"; return; fi
	said=$(bounded 10 $drop "$program" "$@" 2>&1)
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

# /usr/local/cuda, and what update-alternatives says it is
plain_path() {
	path=$R/usr/local/cuda
	if [ ! -h "$path" ] && [ ! -e "$path" ]; then absent cuda.link
	elif [ ! -e "$path" ]; then put cuda.link "$(readlink -- "$path")"
	elif real=$(readlink -f -- "$path") && [ "$real" ]; then put cuda.link "${real#"$R"}"
	else unknown cuda.link "readlink cannot resolve $path"; fi
	path=$R/etc/alternatives/cuda
	if [ ! -h "$path" ]; then absent cuda.alternative
	elif real=$(readlink -- "$path") && [ "$real" ]; then put cuda.alternative "${real#"$R"}"
	else unknown cuda.alternative "readlink cannot read $path"; fi
}

login_nvcc() {
	for folder in usr/local/sbin usr/local/bin usr/sbin usr/bin sbin bin; do
		file=$R/$folder/nvcc
		if [ -f "$file" ] && [ -x "$file" ]; then
			if real=$(readlink -f -- "$file") && [ "$real" ]; then put cuda.nvcc_on_path "${real#"$R"}"
			else unknown cuda.nvcc_on_path "readlink cannot resolve $file"; fi
			return
		fi
	done
	absent cuda.nvcc_on_path
}
