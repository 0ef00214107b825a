# CUDA toolkits, and what /usr/local/cuda is.

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
	plain_path
	login_nvcc
	believed cuda.proof "$PG_CUDA_PROOF"
}

# /usr/local/cuda, and what update-alternatives says it is
plain_path() {
	path=$R/usr/local/cuda
	if [ ! -h "$path" ] && [ ! -e "$path" ]; then absent cuda.link
	elif [ ! -e "$path" ]; then put cuda.link "$(readlink -- "$path")"
	elif cd -P "$path"; then put cuda.link "${PWD#"$R"}"
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
