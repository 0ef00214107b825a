#!/bin/sh
# Makes a link lead to a CUDA toolkit, by update-alternatives.
#
#     choose.sh LINK TOOLKIT PRIORITY BY_HAND
#
# BY_HAND  1: LINK was made by somebody, and is kept under another name
#
# A toolkit whose package registered it is not registered again.
set -u
if [ "$4" ]; then
	set_aside "$1" || exit 1
	echo "$1 is kept as $aside"
fi
update-alternatives --set cuda "$2" 2>/dev/null && exit
update-alternatives --install "$1" cuda "$2" "$3" && update-alternatives --set cuda "$2"
