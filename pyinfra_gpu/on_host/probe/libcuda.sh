# libcuda as the linker cache, the file system and the loader's settings show it.

libcuda() {
	if [ ! "$machine" ]; then
		unknowns "uname is not on this host" libcuda.libdir libcuda.cache libcuda.link libcuda.file
	else
		libdir=/usr/lib/$machine-linux-gnu
		put libcuda.libdir "$libdir"
		cache_rows
		for file in "$libdir/libcuda.so" "$libdir/libcuda.so.1" "$libdir/libnvidia-ml.so.1" \
			${PG_CUDA:+"/usr/local/cuda-$PG_CUDA/lib64/libcuda.so"}; do link "$file"; done
		listed libcuda.link
		for file in "$R$libdir"/libcuda.so.*; do
			if [ -f "$file" ] && [ -s "$file" ] && [ ! -h "$file" ]; then
				put libcuda.file "${file#"$R"}"
			fi
		done
		listed libcuda.file
	fi
	loader_paths
	believed libcuda.proof "$PG_LIBCUDA_PROOF"
}

cache_rows() {
	if ! linker_cache; then unknown libcuda.cache "$reason"; return; fi
	while read -r name rest; do
		[ "$name" ] || continue
		path=${rest#*=> } real=-
		if [ -e "$path" ] && ! real=$(readlink -f -- "$path"); then
			unknown libcuda.cache "readlink cannot resolve $path"
		fi
		put libcuda.cache "$name => $path => ${real:--}"
	done <<-cached
		$cached
	cached
	listed libcuda.cache
}

# link PATH: a file without contents, as a power cut leaves it, is as good as missing
link() {
	kind_of "$R$1"
	target=- real=-
	if [ "$kind" = link ] && ! target=$(readlink -- "$R$1"); then
		unknown libcuda.link "readlink cannot read $1"
		return
	fi
	if [ -f "$R$1" ] && [ -s "$R$1" ]; then
		if real=$(readlink -f -- "$R$1") && [ "$real" ]; then real=${real#"$R"}
		else
			unknown libcuda.link "readlink cannot resolve $1"
			return
		fi
	fi
	put libcuda.link "$kind $1 => $target => $real"
}

loader_paths() {
	for file in "$R/etc/ld.so.conf" "$R"/etc/ld.so.conf.d/*.conf; do
		[ -f "$file" ] || continue
		legible "$file" libcuda.loader_path
		while read -r row rest || [ "$row" ]; do
			case $row in
			'#'* | include) ;;
			*stubs* | *compat*) put libcuda.loader_path "${file#"$R"}: $row" ;;
			esac
		done <"$file"
	done
	listed libcuda.loader_path
}
