#!/bin/sh
# Proves that a CUDA toolkit makes code here: nvcc compiles a kernel for each architecture, and
# links one program that runs.
#
#   sh cuda_proof.sh FINGERPRINT OUTPUT KIND TOOLKIT RELEASE COMPILER ARCH...
#
# FINGERPRINT  of the state that is proven; goes into OUTPUT
# KIND         "proof", or "rehearsal" on a host that only plays a GPU host
# TOOLKIT      its folder, e.g. /usr/local/cuda-13.0; RELEASE: what its runtime must say, "13.0"
# COMPILER     the C++ compiler that nvcc is to use, e.g. g++-13
# OUTPUT       JSON file, written at the very end and in one piece
# ARCH         compute capability times ten, e.g. 120
#
# The last line it prints says what is wrong. Exits with 0 only when all of it is proven.
set -u
fingerprint=$1 output=$2 kind=$3 toolkit=$4 release=$5 compiler=$6
shift 6
nvcc=$toolkit/bin/nvcc
sources=$(dirname -- "$0")

fail() {
	echo "$*" >&2
	exit 1
}

# The flags and folders of whoever runs this would prove something about them, not about the host.
unset NVCC_PREPEND_FLAGS NVCC_APPEND_FLAGS NVCC_CCBIN CPATH CPLUS_INCLUDE_PATH LIBRARY_PATH
unset LD_LIBRARY_PATH LD_PRELOAD

command -v "$compiler" >/dev/null || fail "there is no compiler $compiler"
# Not in /tmp, which may be full, or forbid to run programs.
rm -rf -- "$output".work.??????
work=$(mktemp -d -- "$output.work.XXXXXX") || fail "no directory can be made beside $output"
export TMPDIR="$work"
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' HUP INT TERM

why() { # The line of the log that says most.
	grep -m 1 -i -E 'error|fatal|unsupported|not found' "$work/log" && return
	grep . "$work/log" | tail -n 1 | grep . || echo "it printed nothing"
}

compile() { # WHAT ARGUMENTS...
	what=$1
	shift
	timeout 600 "$nvcc" -ccbin "$compiler" "$@" "$sources/kernel.cu" >"$work/log" 2>&1 && return
	cat "$work/log"
	fail "nvcc cannot $what: $(why)"
}

archs=
for arch in "$@"; do
	compile "make code for sm_$arch" "-arch=sm_$arch" -cubin -o "$work/sm_$arch.cubin"
	# An ELF file (7f 45 4c 46) for the machine 190, CUDA.
	header=$(od -An -v -tx1 -N 20 "$work/sm_$arch.cubin" | tr -d ' \n')
	case $header in
	7f454c46*be00) archs="$archs${archs:+, }$arch" ;;
	*) fail "nvcc made something else than GPU code for sm_$arch" ;;
	esac
done
[ -n "$archs" ] || fail "no architecture was given"

compile "link a program with $compiler" "-arch=sm_$1" -o "$work/program"
said=$("$work/program" 2>"$work/log") || {
	cat "$work/log"
	fail "the program that nvcc linked does not run"
}
[ "$said" = "$release" ] || fail "the program that nvcc linked is of CUDA $said, not $release"

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
  "nvcc": "$(text "$("$nvcc" --version | sed -n 's/.*, V\([0-9.]*\).*/\1/p')")",
  "compiler": "$(text "$("$compiler" --version | head -n 1)")",
  "archs": [$archs]
}
EOF
sync -f "$new" && mv -f -- "$new" "$output" || fail "$output cannot be written"
echo "nvcc makes code for $(printf '%s' "$archs" | sed 's/[0-9][0-9]*/sm_&/g') with $compiler"
