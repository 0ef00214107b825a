# What is looked at as the owner. PG_LEFT: the paths, one a line, of which only the owner may say what
# stands there.
theirs() {
	# It is all asked for at once, and so in one process, which has the time there is.
	most=$ticks key="owned torch environment training smoke"
	if [ ! "$stuck" ]; then
		told "$key${PG_NVIDIA:+ cuda}" of_theirs
		return
	fi
	late
	told "owned${PG_NVIDIA:+ cuda}" needs
}

of_theirs() {
	seen_before
	standing owned "$PG_LEFT"
	ask_theirs
	digests owned
	torch
	needs
	text environment.text "$PG_ENV_FILE"
	training
	text smoke.verdict "$PG_VERDICT"
}

# seen_before asks what stands at all paths of which a text or a digest is told.
seen_before() {
	have stat || return
	IFS=$nl
	set -f
	set -- $PG_LEFT $PG_ENV_FILE $PG_REQUIREMENTS $PG_TRAINING_STAMP $PG_VERDICT
	if [ $# != 0 ]; then seen=$nl$(stat -c '%f %u %U %s %n' -- "$@")$nl; fi
	set +f
	IFS=$ifs
}

# ask_theirs runs what is the owner's or tells of it, all within one limit: the environment's Python and
# its tools, git, compilers, what reads settings and what makes digests. A file full of holes is as large
# as somebody says.
ask_theirs() {
	text='' reader=''
	if [ -e "$PG_VENV/bin/python" ]; then text='a python "$1/bin/python" -I -S -B -c "$2" "$1" "$3" "$4"'; fi
	if [ -f "$PG_UV" ]; then text=$text$nl'a uv "$5" --version'; fi
	if [ "$PG_TRAINING" ] && [ -e "$PG_TRAINING/.git" ] && have git; then
		git='git -c "safe.directory=$6" -C "$6" $7'
		text="$text$nl$apart${nl}a status $git $branch${nl}a files $git ls-files -v${nl}a origin $git $origin"
		if have sed; then reader=flagged; fi
	fi
	if have grep; then
		text=$text$nl'a all grep -HsoE -m9 "${11}" -- "${12}"/etc/environment "${12}"/etc/environment.d/*.conf \
	"${12}"/etc/security/pam_env.conf "${12}"/etc/profile "${12}"/etc/profile.d/*.sh "${12}"/etc/bash.bashrc'
	fi
	if [ "$PG_NVIDIA" ]; then
		owners_home
		ask_compilers
	fi
	summed=$files
	row_of "$PG_REQUIREMENTS"
	set +f
	case $row in *' 8'*) [ "$size" -gt 4194304 ] || summed=$summed$nl$PG_REQUIREMENTS ;; esac
	text=$text$nl"IFS='$nl'${nl}set -f"
	if [ "$shells" ] && have grep; then text=$text$nl'a shells grep -HsE -m9 "${10}" -- ${13}'; fi
	if [ "$summed" ] && have sha256sum; then text=$text$nl'a sums sha256sum -- ${14}'; fi
	together $((PG_COMPARE + 12)) "$text" "$PG_VENV" "$check" "$PG_STAMP" "$PG_COMPARE" "$PG_UV" \
		"$PG_TRAINING" "$settings" "$nvcc" "$PG_COMPILER" "$tells" "$for_all" "$R" "$shells" "$summed"
	reader=''
}
