training() {
	requirements
	text training.stamp "$PG_TRAINING_STAMP"
	if [ "$PG_TRAINING" ]; then
		owners_home
		masked training.masked "$home/.config/systemd/user/pyinfra-gpu-train@.service"
	else listed training.masked; fi
	kind=absent
	if [ "$PG_TRAINING" ]; then kind_of "$PG_TRAINING/.git"; fi
	if [ "$kind" = absent ]; then
		absent training.commit training.remote training.lfs training.damaged
		put training.dirty_count 0
		listed training.dirty training.submodule
		return
	fi
	if [ "$kind" = hidden ]; then reason="no permission to look at $PG_TRAINING"
	elif ! lacks git; then
		repository && return
		reason="git: $reason"
	fi
	unknowns "$reason" training.commit training.remote training.dirty training.dirty_count \
		training.submodule training.lfs
	case $reason in
	# What a power cut or a full disk leaves of a repository, in git's words.
	git:*'not a git repository'* | git:*'index file'* | git:*'bad signature'* | git:*packfile* | \
		git:*'object file'* | git:*'loose object'* | git:*'bad object'* | git:*'unable to read'* | \
		git:*corrupt* | git:*'bad tree'*) put training.damaged "$reason" ;;
	*) absent training.damaged ;;
	esac
}

requirements() {
	IFS=$nl
	set -f
	for row in $said_sums; do
		case $row in
		*"  $PG_REQUIREMENTS")
			if [ "${row#*  }" = "$PG_REQUIREMENTS" ]; then
				put training.requirements "${row%% *}"
				set +f
				IFS=$ifs
				return
			fi
			;;
		esac
	done
	set +f
	IFS=$ifs
	digest training.requirements "$PG_REQUIREMENTS"
}

# Nothing but the repository's own settings counts, nothing of it is executed, nothing is fetched.
settings='--no-optional-locks -c core.fsmonitor=false -c core.untrackedCache=false -c protocol.allow=never
	-c core.hooksPath=/dev/null -c core.quotePath=true --git-dir=.git --work-tree=.'
in_repository() {
	name=$1
	shift
	answer $name 10 git -c "safe.directory=$PG_TRAINING" -C "$PG_TRAINING" $settings "$@"
}

# What is always asked of it; of the files, those alone that git was told something of.
branch='status --porcelain=v2 --branch --untracked-files=normal'
origin='config --get remote.origin.url'
flagged() { ulimit -v 65536; exec sed -e '/^H /d' -e "/^$mark [0-9]/q" -e 100000q; }
apart='unset GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_NAMESPACE
unset GIT_COMMON_DIR GIT_CONFIG GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GIT_TRACE
export GIT_OPTIONAL_LOCKS=0 GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_NO_LAZY_FETCH=1 GIT_TERMINAL_PROMPT=0 HOME=/nonexistent XDG_CONFIG_HOME=/nonexistent'

# counted KEY ROW: the first 20 of them are told
counted() {
	n=$((n + 1))
	if [ $n -le 20 ]; then put "$1" "$2"; fi
}

repository() {
	eval "$apart"
	in_repository status $branch
	status=$?
	if [ $status != 0 ]; then
		why $status "$said"
		return 1
	fi
	n=0
	IFS=$nl
	set -f
	for row in $said; do
		case $row in
		'# branch.oid ('*) absent training.commit ;;
		# A submodule at another commit and nothing else: submodules tells of those.
		'1 .M SC.. '*) ;;
		'# branch.oid '*) put training.commit "${row#\# branch.oid }" ;;
		[12u?]\ *)
			counted training.dirty "$row"
			;;
		esac
	done
	set +f
	IFS=$ifs
	unwatched
	put training.dirty_count $n
	listed training.dirty
	absent training.damaged
	in_repository origin $origin
	case $? in
	0) put training.remote "$said" ;;
	1) absent training.remote ;;
	*) unknown training.remote "git: $said" ;;
	esac
	submodules
	large_files
}

# Files that git was told not to look at (git-update-index(1), assume-unchanged and skip-worktree):
# what stands in them is not what is recorded, or nobody knows.
unwatched() {
	in_repository files ls-files -v || return
	IFS=$nl
	set -f
	for row in $said; do
		case $row in
		[a-z]\ * | S\ *)
			counted training.dirty "? ${row#? }"
			;;
		esac
	done
	set +f
	IFS=$ifs
}

# Those that are not there, or not at the commit that is recorded for them.
submodules() {
	if [ -e "$PG_TRAINING/.gitmodules" ]; then
		in_repository submodule submodule status --recursive
		status=$?
		if [ $status != 0 ]; then
			why $status "$said"
			unknown training.submodule "git: $reason"
			return
		fi
		n=0
		IFS=$nl
		set -f
		for row in $said; do
			case $row in
			[-+U]*)
				counted training.submodule "$row"
				;;
			esac
		done
		set +f
		IFS=$ifs
	fi
	listed training.submodule
}

# How many files of git LFS are still what stands for them; "-" where the program is not there.
large_files() {
	lfs=
	if [ -f "$PG_TRAINING/.gitattributes" ]; then
		while IFS= read -r row || [ "$row" ]; do
			case $row in *filter=lfs*) lfs=1 ;; esac
		done <"$PG_TRAINING/.gitattributes"
	fi
	if [ ! "$lfs" ]; then absent training.lfs
	elif ! have git-lfs; then put training.lfs -
	elif in_repository lfs lfs ls-files; then
		n=0
		IFS=$nl
		set -f
		for row in $said; do
			case $row in [0-9a-f]*' - '*) n=$((n + 1)) ;; esac
		done
		set +f
		IFS=$ifs
		put training.lfs $n
	else
		why $? "$said"
		unknown training.lfs "git: $reason"
	fi
}

