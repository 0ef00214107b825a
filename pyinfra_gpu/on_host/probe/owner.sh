# As whom the owner's part of the look is made, and what is left to it.

# choose_owner sets $theirs, where the owner is to look, and $number, $group and $home; it is empty where
# whoever looks may look at all of it. Where nobody can be let look, $because says why. By name, as
# declared, and never as a file's owner: that is for the owner to say.
choose_owner() {
	theirs='' because='' home=
	case $uid in 0 | '') ;; *) return ;; esac
	if [ "$PG_OWNER" = - ]; then return; fi
	owner=${PG_OWNER:-${SUDO_USER:-${DOAS_USER:-$(id -un)}}}
	local_user
	if [ ! "$number" ]; then
		# uid=1000(alice) gid=1000(alice) groups=...
		ids=$(ended 5 id -- "$owner")
		number=${ids#uid=} group=${ids#* gid=}
		case $owner in *[!a-z0-9_-]*) ;; *) eval "home=~$owner" ;; esac
	fi
	number=${number%%[!0-9]*} group=${group%%[!0-9]*}
	if [ "$number" = 0 ]; then return; fi
	theirs=1
	if [ ! "$number" ] || [ ! "$group" ]; then because="there is no user $owner on this host"; return; fi
	if lacks stat timeout env awk; then because=$reason; fi
}

# local_user looks $owner up where the system does so first, if that is a file.
local_user() {
	number='' group=''
	while read -r name each rest; do
		[ "$name" != passwd: ] || break
	done </etc/nsswitch.conf
	[ "$name $each" = 'passwd: files' ] || return
	n=0
	while [ $n -lt 200 ] && IFS=: read -r name rest number group each home rest; do
		if [ "$name" = "$owner" ]; then return; fi
		n=$((n + 1))
	done </etc/passwd
	number='' home=''
}

# known_before asks for all that root looks at below the prefix, and for the way there, at once and not
# for each when it comes to it: a program's start costs more than what it looks at. It sets $seen to
# rows of `entries`, and tells root_only of the directories among them.
known_before() {
	[ "$theirs" ] || return 0
	IFS=$nl
	set -f
	at=$PG_PREFIX
	set --
	while [ "$at" ]; do
		set -- "$at" "$@"
		at=${at%/*}
	done
	for path in $PG_PATHS $PG_STAMP $PG_CUDA_PROOF $PG_LIBCUDA_PROOF; do
		path=${path%/*}
		case "$nl$*$nl" in *"$nl$path$nl"*) continue ;; esac
		case $path in "$PG_PREFIX"/*/*) set -- "$@" "${path%/*}" "$path" ;; "$PG_PREFIX"/*) set -- "$@" "$path" ;; esac
	done
	seen=$nl$(
		set +f
		stat -c '%f %u %U %s %n' -- "$@" $PG_PATHS $PG_STAMP $PG_CUDA_PROOF $PG_LIBCUDA_PROOF \
			${PG_NVIDIA:+"$R"/boot/initrd.img-*}
	)$nl
	set +f
	IFS=$ifs
	for path do
		above=${path%/*}
		case :$checked in *":$path:"*) continue ;; *":$above:"*) ;; *) [ ! "$above" ] || continue ;; esac
		row_of "$path"
		case $row in
		'0 4'*) if [ $((0x${row#0 } & 18)) = 0 ]; then checked=$checked:$path:; else refused=$refused:$path:; fi ;;
		*' 4'*) refused=$refused:$path: ;;
		# Not there, below what root alone can change; root_only takes it for such, too.
		'') checked=$checked:$path: ;;
		esac
	done
	set +f
}

# left prints those of PG_PATHS, one a line, that are left to the owner: in what somebody else than
# root can change, and files that are not root's, whose content may be exchanged while it is read.
left() {
	[ "$theirs" ] || return 0
	IFS=$nl
	set -f
	for path in $PG_PATHS; do
		case $path in "$PG_PREFIX"/*) ;; *) continue ;; esac
		if root_only "${path%/*}"; then
			row_of "$path"
			case $row in '0 '*) continue ;; *' 8'*) ;; *) continue ;; esac
		fi
		printf '%s\n' "$path"
	done
}

# reached looks at all that the two before it look at, and says nothing.
reached() {
	IFS=$nl
	set -f
	for path in "${PG_PREFIX%/*}" "$PG_PREFIX" $PG_PATHS "$R/boot/."; do [ -h "$path" ]; done
}

layout() {
	IFS=$nl
	set -f
	set --
	for path in $PG_PATHS; do
		put layout.asked "$path"
		case $nl$PG_LEFT$nl in
		*"$nl$path$nl"*) put layout.left "$path" ;;
		*) set -- "$@" "$path" ;;
		esac
	done
	listed layout.asked layout.left
	if [ "$PG_OWNER" = - ] || [ "$uid" != 0 ] || root_only "${PG_PREFIX%/*}"; then absent layout.open
	else put layout.open "$open"; fi
	entries layout "$*"
}

# believed KEY FILE: the whole text of a file that root alone can have written
believed() {
	if [ "$2" ] && [ "$theirs" ] && [ ! "$stuck" ]; then
		if ! root_only "${2%/*}"; then
			unknown "$1" "somebody else than root can change $open"
			return
		fi
		row_of "$2"
		case $row in
		'' | '0 8'*) ;;
		*) unknown "$1" "$2 is not a file of root's"; return ;;
		esac
	fi
	text "$1" "$2"
}

# What the owner's process may tell.
owners_keys="owned.stat owned.absent owned.hidden owned.target owned.unread owned.sha256 owned.closed \
owned.preload_problem environment.text owned.for_all smoke.verdict build.stamp build.wheel build.state build.pid build.cudnn torch.python torch.python_problem torch.base \
torch.declared torch.installing torch.version_line torch.distribution torch.damaged torch.foreign torch.other \
torch.need torch.elsewhere torch.touched torch.uv training.requirements training.stamp training.commit training.remote \
training.dirty training.dirty_count training.submodule training.lfs training.damaged training.masked cuda.shell cuda.nvcc cuda.gcc cuda.gxx \
cuda.compiler cuda.glibc"

# owners_part runs `theirs` as the owner, or says why it cannot.
owners_part() {
	if [ ! "$because" ]; then
		rest=$((ticks * tick)) shell=$(command -v sh)
		set -- "PATH=$PATH" PG_SBIN= "PG_ROOT=$R" "PG_TICK=$tick" PG_SECONDS=$((rest - tick)) \
			"PG_STUCK=$stuck" "PG_LIMIT=$limit" "PG_HOME=$home"
		for each in LEFT VENV BUILD UV PYTHON ENV_FILE TRAINING REQUIREMENTS TRAINING_STAMP VERDICT \
			STAMP COMPARE NVIDIA CUDA COMPILER CUDNN; do
			eval 'set -- "$@" "PG_'$each'=$PG_'$each'"'
		done
		set -- "$shell" -c 'unset HOME SHELL USER LOGNAME
for each do eval "${each%%=*}=\${each#*=}"; done
export PATH
echo theirs-begin
'"$shared_text$nl$owners_text"'
watched
theirs
unwatch
echo theirs-end' sh "$@"
		as_owner setpriv --reuid=$number --regid=$group --init-groups --reset-env -- "$@" && return
		groups=$(set -- $(alone 5 id -G -- "$owner"); IFS=,; printf %s "$*")
		as_owner chroot --userspec=$number:$group --groups="$groups" / env -i "$@" && return
		because="neither setpriv nor chroot on this host can run anything as $owner"
	fi
	put layout.owner_problem "$because"
	unknowns "$because" $owners_keys
}

# as_owner COMMAND...: whether that came as far as the owner. What it prints is the owner's to forge, so
# of it pass whole, plain lines of the expected keys alone, up to 1 MiB; and a process that stays behind
# and keeps the pipe open is not waited for. It has the time that is left, less one tick; a line that was
# cut in two then has a byte in it that none may have.
as_owner() {
	{
		ended $rest "$@"
		printf '\001\ntheirs-end\n'
	} | {
		ulimit -v 65536
		exec awk -v keys="$owners_keys" '
			BEGIN { for (n = split(keys, each, " "); n; n--) may[each[n]] }
			held != "" { print held; held = ""; fflush() }
			$0 == "theirs-end" { exit }
			$0 == "theirs-begin" { begun = 1 }
			(total += length($0) + 1) > 1048576 { exit }
			/^look\.late =(owned|torch|environment|training|smoke|cuda)$/ { held = $0 }
			substr($0, 1, index($0, " ") - 1) in may && /^[^ ]+ [-+#.=x?!][ -~]*$/ { held = $0 }
			END { exit begun ? 0 : 9 }'
	}
	[ $? != 9 ] && absent layout.owner_problem
}
