training() {
	digest training.requirements "$PG_REQUIREMENTS"
	text training.stamp "$PG_TRAINING_STAMP"
	kind=absent
	if [ "$PG_TRAINING" ]; then kind_of "$PG_TRAINING/.git"; fi
	if [ "$kind" = absent ]; then
		absent training.commit training.remote
		put training.dirty_count 0
		listed training.dirty
		return
	fi
	if [ "$kind" = hidden ]; then reason="no permission to look at $PG_TRAINING"
	elif ! have git; then reason="git is not on this host"
	else
		repository && return
		reason="git: $reason"
	fi
	unknown_all "$reason" training.commit training.remote training.dirty training.dirty_count
}

# Nothing but the repository's own settings counts, nothing of it is executed, nothing is fetched.
in_repository() {
	bounded 10 git --no-optional-locks -c "safe.directory=$PG_TRAINING" -c core.fsmonitor=false \
		-c core.untrackedCache=false -c core.hooksPath=/dev/null -c core.quotePath=true \
		-c protocol.allow=never -C "$PG_TRAINING" --git-dir=.git --work-tree=. "$@" 2>&1
}

repository() {
	unset GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_NAMESPACE \
		GIT_COMMON_DIR GIT_CONFIG GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GIT_TRACE
	export GIT_OPTIONAL_LOCKS=0 GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null \
		GIT_NO_LAZY_FETCH=1 GIT_TERMINAL_PROMPT=0 HOME=/nonexistent XDG_CONFIG_HOME=/nonexistent
	said=$(in_repository status --porcelain=v2 --branch --untracked-files=normal)
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
		'# branch.oid '*) put training.commit "${row#\# branch.oid }" ;;
		[12u?]\ *)
			n=$((n + 1))
			if [ $n -le 20 ]; then put training.dirty "$row"; fi
			;;
		esac
	done
	set +f
	IFS=$ifs
	put training.dirty_count $n
	listed training.dirty
	url=$(in_repository config --get remote.origin.url)
	case $? in
	0) put training.remote "$url" ;;
	1) absent training.remote ;;
	*) unknown training.remote "git: $url" ;;
	esac
}

