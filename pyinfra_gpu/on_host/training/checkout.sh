#!/bin/sh
# Checks a repository out at a commit, detached, with its submodules and its files of git LFS.
#
#   sh checkout.sh FOLDER REPO COMMIT STASH SUBMODULES LFS
#
# STASH        1: local changes are stashed first, in submodules too
# SUBMODULES   1: check them out, each at the commit recorded for it
# LFS          1: fetch those files, where git-lfs is on the host
#
# Lines "pyinfra-gpu-note: ..." say for the report what was kept elsewhere, once it is.
set -eu
folder=$1 repo=$2 commit=$3 stash=$4 submodules=$5 lfs=$6
# An ssh remote must not stop at a question nobody sees.
export GIT_TERMINAL_PROMPT=0
# Fetched together afterwards, and not one after the other while files are written.
export GIT_LFS_SKIP_SMUDGE=1
# A repository above FOLDER is none of ours.
export GIT_CEILING_DIRECTORIES="${folder%/*}"
# git takes submodules of this machine (CVE-2022-39253) only where the repository is of it too.
files=
case $repo in /* | file://*) files='-c protocol.file.allow=always' ;; esac

# HEAD is detached, so a commit that a person made here hangs on nothing but HEAD.
keep='kept=pyinfra-gpu/kept-$(git rev-parse --short=12 HEAD)
[ -n "$(git for-each-ref --count=1 --contains HEAD)" ] || {
	git branch "$kept" HEAD || exit 1
	echo "pyinfra-gpu-note: $(pwd) was at $(git rev-parse --short=12 HEAD), which no branch or tag had:" \
		"branch $kept keeps it"
}'
set_aside='git stash push --include-untracked -m "set aside by pyinfra-gpu" >/dev/null'

# whole FOLDER: what belongs to the commit that is checked out there
whole() {
	if [ "$stash" ] && [ -e "$1/.gitmodules" ]; then
		git -C "$1" submodule --quiet foreach --recursive "$set_aside"
	fi
	if [ "$submodules" ] && [ -e "$1/.gitmodules" ]; then
		git -C "$1" submodule --quiet sync --recursive
		git -C "$1" submodule --quiet foreach --recursive "$keep"
		git $files -C "$1" submodule --quiet update --init --recursive
	fi
	if [ "$lfs" ] && grep -qs 'filter=lfs' "$1/.gitattributes"; then
		if command -v git-lfs >/dev/null; then
			git -C "$1" lfs install --local --skip-repo >/dev/null
			git -C "$1" lfs pull
		else
			# The look before saw another commit, or nothing: nobody has said it of this one.
			echo 'pyinfra-gpu-note: files in git LFS, and no git-lfs on the host: put "git-lfs" into' \
				'`packages_extra`, or declare `training_lfs = False`'
		fi
	fi
}

damaged=
if [ -e "$folder/.git" ]; then git -C "$folder" status --porcelain >/dev/null 2>&1 || damaged=1; fi
if [ "$damaged" ] || ! git -C "$folder" rev-parse --quiet --verify HEAD >/dev/null 2>&1; then
	# Cloned beside and renamed: a clone that was cut off leaves no half repository.
	rm -rf "$folder.cloning"
	# An empty directory may stand there; anything else makes rmdir, and this program, fail.
	[ ! -e "$folder" ] || [ "$damaged" ] || rmdir "$folder"
	git clone --quiet --no-checkout -- "$repo" "$folder.cloning"
	git -C "$folder.cloning" checkout --quiet --detach "$commit"
	whole "$folder.cloning"
	if [ "$damaged" ]; then
		aside=$folder.damaged-$(date +%Y%m%dT%H%M%S)
		mv -T -- "$folder" "$aside"
		echo "pyinfra-gpu-note: the repository that git cannot read is kept as $aside"
	fi
	mv -T -- "$folder.cloning" "$folder"
	exit 0
fi
cd "$folder"
eval "$keep"
if [ "$stash" ]; then
	# Neither are files stashed that git was told not to look at.
	git ls-files -z -v | grep -z '^[a-z]' | cut -z -c 3- | git update-index -z --no-assume-unchanged --stdin
	git ls-files -z -v | grep -z '^S' | cut -z -c 3- | git update-index -z --no-skip-worktree --stdin
	eval "$set_aside"
fi
# By URL, not by remote name: what the user's remotes are called is the user's business.
git cat-file -e "$commit^{commit}" 2>/dev/null ||
	git fetch --quiet -- "$repo" '+refs/heads/*:refs/pyinfra-gpu/*'
git checkout --quiet --detach "$commit"
whole .
