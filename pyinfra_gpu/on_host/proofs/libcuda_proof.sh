#!/bin/sh
# Proves which libcuda programs get here: one linked with -lcuda and one that opens libcuda.so.1
# must load the same file, that of the loaded driver.
#
#   sh libcuda_proof.sh FINGERPRINT OUTPUT KIND VERSION OWNED COMPILER
#
# FINGERPRINT  of the state that is proven; goes into OUTPUT
# KIND         "proof", or "rehearsal" on a host that only plays a GPU host
# VERSION      of the loaded kernel module, e.g. 580.95.05; the library's must be the same
# OWNED        1: the file must belong to a package; 0: the driver did not come as one
# COMPILER     the C compiler
# OUTPUT       JSON file, written at the very end and in one piece
#
# The last line it prints says what is wrong. Exits with 0 only when all of it is proven.
set -u
fingerprint=$1 output=$2 kind=$3 version=$4 owned=$5 compiler=$6
sources=$(dirname -- "$0")

fail() {
	echo "$*" >&2
	exit 1
}

# The folders of whoever runs this would prove something about them, not about the host.
unset CPATH C_INCLUDE_PATH LIBRARY_PATH LD_LIBRARY_PATH LD_PRELOAD

command -v "$compiler" >/dev/null || fail "there is no compiler $compiler"
# Not in /tmp, which may be full, or forbid to run programs.
rm -rf -- "$output".work.??????
work=$(mktemp -d -- "$output.work.XXXXXX") || fail "no directory can be made beside $output"
export TMPDIR="$work"
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' HUP INT TERM

why() { # PATTERN: the line of the log that says most
	grep -m 1 -E "$1" "$work/log" && return
	grep . "$work/log" | tail -n 1 | grep . || echo "it printed nothing"
}

compile() { # NAME WHAT LIBRARY
	"$compiler" -O1 -o "$work/$1" "$sources/$1.c" "$3" >"$work/log" 2>&1 && return
	cat "$work/log"
	fail "$compiler cannot $2: $(why 'cannot find|error')"
}

loaded() { # NAME WHAT: prints the file behind the library that the program got
	said=$(timeout 60 "$work/$1" 2>"$work/log") || {
		cat "$work/log" >&2
		fail "a program that $2 does not run: $(why 'error')"
	}
	readlink -e -- "${said#* }" || fail "a program that $2 got ${said#* }, which is not a file"
}

owner() { # FILE: prints the package it belongs to; the same file may be known without /usr
	for file in "$1" "${1#/usr}"; do
		dpkg-query -S "$file" 2>/dev/null | sed -n "s|: $file\$||p" | head -n 1 | grep . && return
	done
	return 1
}

compile linked "link with -lcuda" -lcuda
compile dlopened "compile a program" -ldl
linked=$(loaded linked "is linked with -lcuda") || exit 1
dlopened=$(loaded dlopened "opens libcuda.so.1") || exit 1

[ "$linked" = "$dlopened" ] ||
	fail "a program linked with -lcuda loads $linked, one that opens libcuda.so.1 loads $dlopened"
case $linked in
*/stubs/*) fail "$linked is the toolkit's stub: it is for linking only" ;;
*/compat/*) fail "$linked is of a CUDA compatibility package, not of the driver" ;;
esac
[ "${linked##*/}" = "libcuda.so.$version" ] ||
	fail "programs load $linked, and the loaded driver is $version"
package=$(owner "$linked") || package=
[ "$owned" = 0 ] || [ -n "$package" ] || fail "$linked belongs to no package"

text() { # As the inside of a JSON string.
	printf '%s' "$1" | tr -d '\000-\037' | sed 's/[\\"]/\\&/g'
}

new=$output.new
cat >"$new" <<EOF || fail "$new cannot be written"
{
  "schema_version": 1,
  "fingerprint": "$(text "$fingerprint")",
  "status": "pass",
  "kind": "$(text "$kind")",
  "library": "$(text "$linked")",
  "package": "$(text "$package")",
  "driver": "$(text "$version")"
}
EOF
sync -f "$new" && mv -f -- "$new" "$output" || fail "$output cannot be written"
echo "programs load $linked${package:+ of $package}"
