#!/bin/sh
# Makes links to the driver's library, and the linker's cache.
#
#     links.sh SONAME [PATH TARGET]...
#
# SONAME  path of libcuda.so.1, which ldconfig makes from the library's own name: it runs before, too
#
# A link that its package has brought back stays: some lead it through /etc/alternatives.
set -u
soname=$1
shift
ldconfig || exit 1
while [ $# -gt 1 ]; do
	case $(readlink -- "$1") in
	/etc/alternatives/*) [ "$1" -ef "$soname" ] ;;
	*) false ;;
	esac || ln -sfn -- "$2" "$1" || exit 1
	shift 2
done
ldconfig
