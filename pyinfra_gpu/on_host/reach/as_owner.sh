# as_owner OWNER COMMAND [WORDS...]: becomes WORDS, which run COMMAND as OWNER, as a login of theirs
# would but without its profile.
as_owner() {
	owner=$1 command=$2
	shift 2
	home=$(getent passwd "$owner" | cut -d: -f6)
	exec "$@" runuser -u "$owner" -- \
		env HOME="${home:-/}" USER="$owner" LOGNAME="$owner" sh -c "$command"
}
