#!/bin/sh
# Links a program with objects of a build of PyTorch's, compiled as they were, and runs it.
#
#   sh link_store.sh BUILD SOURCE OBJECT...
set -eu
cd "$1"
source=$2
shift 2
command=$(/opt/pyinfra-gpu/build/tools/bin/ninja.whole -t commands "$1" | tail -n 1)
command=${command%% -MD *}
target=$(mktemp)
$command -w -o "$target" "$source" "$@" lib/libtensorpipe.a lib/libtensorpipe_uv.a lib/libc10.so \
	-lfmt -lpthread -ldl "-Wl,-rpath,$PWD/lib"
exec timeout 30 "$target"
