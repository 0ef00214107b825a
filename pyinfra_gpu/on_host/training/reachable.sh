#!/bin/sh
# Fails, with git's own words, where a commit is not there and cannot be fetched. Keeps nothing.
#
#   sh reachable.sh FOLDER REPO COMMIT
#
# FOLDER   the checkout, which may have the commit already
set -u
folder=$1 repo=$2 commit=$3
export GIT_TERMINAL_PROMPT=0
command -v git >/dev/null || exit 0 # a later stage installs it
git -C "$folder" cat-file -e "$commit^{commit}" 2>/dev/null && exit 0
git ls-remote --quiet -- "$repo" HEAD >/dev/null || exit 1
# Which commits a server has it tells to who fetches one. Not every server gives out a single one.
there=$(mktemp -d) || exit 0
trap 'rm -rf "$there"' EXIT
git init --quiet --bare "$there"
answer=$(git -C "$there" fetch --quiet --depth=1 --filter=tree:0 -- "$repo" "$commit" 2>&1) && exit 0
case $answer in *"not our ref"*)
	echo "it has no commit $commit" >&2
	exit 1
	;;
esac
