#!/bin/sh
# In the place of ninja in the build's own tools: a part of PyTorch is enough here.
#
# ninja.whole   ninja itself
# ninja.part    the targets that are compiled where all of PyTorch was asked for, a line each
here=$(dirname "$0")
case "$*" in
"-C "*"/source/build -j "*) exec "$here/ninja.whole" "$@" $(cat "$here/ninja.part") ;;
*" install") echo "error: only a part of PyTorch was compiled here: there is no wheel of it" >&2; exit 1 ;;
*) exec "$here/ninja.whole" "$@" ;;
esac
