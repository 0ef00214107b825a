# libcuda as the linker cache, the file system and the loader's settings show it.

# linked_libraries sets $libdir, where the driver's libraries are, $linked, which of those that are
# looked at are links, and $whole, which lead to a file with contents.
linked_libraries() {
	libdir=/usr/lib/$machine-linux-gnu linked='' whole=''
	for file in "$libdir/libcuda.so" "$libdir/libcuda.so.1" "$libdir/libnvidia-ml.so.1" \
		${PG_CUDA:+"/usr/local/cuda-$PG_CUDA/lib64/libcuda.so"}; do
		if [ -h "$R$file" ]; then linked=$linked$R$file$nl; fi
		if [ -f "$R$file" ] && [ -s "$R$file" ]; then whole=$whole$R$file$nl; fi
	done
}

# libcuda comes after driver, which has read the linker cache and all those.
libcuda() {
	if [ ! "$machine" ]; then
		unknowns "uname is not on this host" libcuda.libdir libcuda.cache libcuda.link libcuda.file
	else
		put libcuda.libdir "$libdir"
		ends=$all_read
		links_read '' "$linked"
		targets=$all_read all_read=$ends
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
	if [ "$cache_problem" ]; then unknown libcuda.cache "$cache_problem"; return; fi
	IFS=$nl
	set -f
	for row in $cached; do
		path=${row#*=> } read=-
		if [ -e "$path" ] && ! link_read "$path"; then
			unknown libcuda.cache "readlink cannot resolve $path"
			read=-
		fi
		put libcuda.cache "${row%% *} => $path => $read"
	done
	set +f
	IFS=$ifs
	listed libcuda.cache
}

# link PATH: a file without contents, as a power cut leaves it, is as good as missing
link() {
	kind_of "$R$1"
	target=- real=-
	if [ "$kind" = link ]; then
		if ! link_read "$R$1" "$targets"; then
			unknown libcuda.link "readlink cannot read $1"
			return
		fi
		target=$read
	fi
	if [ -f "$R$1" ] && [ -s "$R$1" ]; then
		if ! link_read "$R$1"; then
			unknown libcuda.link "readlink cannot resolve $1"
			return
		fi
		real=${read#"$R"}
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
