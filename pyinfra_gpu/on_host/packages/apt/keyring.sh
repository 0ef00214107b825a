#!/bin/sh
# Fetches a keyring package and prints the keyring in it, as one line of base64.
#
#     keyring.sh URL SHA256:DIGEST FILE
#
# FILE is the keyring's path in the package. A package of another digest is never opened.

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
/usr/lib/apt/apt-helper download-file "$1" "$folder/keyring.deb" "$2" >&2 || exit 1
dpkg-deb -x "$folder/keyring.deb" "$folder/root" || exit 1
base64 -w 0 "$folder/root/$3" || exit 1
echo
