# The one look at a host. POSIX sh (dash, busybox sh, bash); writes nothing, contends for no lock.
#
# Root looks at what root alone can change, and at nothing below what the owner can write: a process
# of the owner's does that, with the text of `theirs.sh` and of what stands before it in the probe,
# and `end.sh` lets through what it may tell.
#
# Inputs, assigned in front of this text: PG_PREFIX PG_VENV PG_BUILD PG_UV PG_ENV_FILE PG_TRAINING
# PG_REQUIREMENTS PG_TRAINING_STAMP PG_STAMP PG_VERDICT (absolute paths, or empty: not asked),
# PG_PATHS (absolute paths, one a line), PG_PACKAGES (names with blanks between), PG_OWNER (the user
# whose the tree is; empty: who logged in; -: nobody else than who looks), PG_CUDNN (folders in which a
# build of torch looks for cuDNN's headers, one a line). PG_NVIDIA (1 or empty) asks for what belongs to an NVIDIA driver, and with it: PG_CUDA (release), PG_COMPILER,
# PG_REPOSITORY (URL), PG_KEYRING PG_CUDA_PROOF PG_LIBCUDA_PROOF PG_REBOOTS (absolute paths, or
# empty).
# PG_COMPARE: seconds for the files of the environment, the last three of them without digests.
# PG_SECONDS is for all of it; what has not been told by then is named as late.
# PG_ROOT puts another tree in the place of / for what the system says of itself;
# PG_SBIN replaces what is added to PATH. PG_TICK is the number of seconds between two looks at what
# hangs.
#
# Output: ASCII lines "KEY TAGVALUE" between a first and a last marker line. The tags:
#   =text   the value            x68 69 the value's bytes in hex (anything that is not plain ASCII)
#   -       it is not there      .      the list of this key is complete
#   ?text   not known, and why   !6869  the same in hex
#   +text   a line of the value      #3   how many lines that are
# A list is a key that comes several times. A line without the last marker may be cut in two.
# "look.late =KEY" names what hung and was given up: KEY and all that begin with it.

LC_ALL=C
export LC_ALL
exec 2>/dev/null </dev/null
PATH=$PATH${PG_SBIN-:/usr/local/sbin:/usr/sbin:/sbin}
R=${PG_ROOT-}
nl='
'
ifs=" 	$nl"
IFS=$ifs

have() { command -v "$1" >/dev/null; }

# emit KEY TAG HEXTAG VALUE
emit() {
	case $4 in
	*[!\ -~]* | ' '* | *' ')
		hex=$(printf %s "$4" | od -An -v -tx1)
		if [ "$hex" ]; then
			key=$1 tag=$3 old=$IFS IFS=$ifs
			set -- $hex
			IFS=
			printf '%s %s%s\n' "$key" "$tag" "$*"
			IFS=$old
		else
			printf '%s ?odd bytes, and od does not work here\n' "$1"
		fi
		;;
	*) printf '%s %s%s\n' "$1" "$2" "$4" ;;
	esac
}
put() { emit "$1" = x "$2"; }
unknown() { emit "$1" '?' '!' "$2"; }
absent() { printf '%s -\n' "$@"; }
listed() { printf '%s .\n' "$@"; }

# unknowns REASON KEY...
unknowns() {
	reason=$1
	shift
	for each do unknown "$each" "$reason"; done
}

# lacks PROGRAM...: whether one of them is not there; $reason says which
lacks() {
	for each do
		have "$each" && continue
		reason="$each is not on this host"
		return
	done
	return 1
}

# has PROGRAM KEY...: whether it is there; what it would tell is not known where it is not
has() {
	lacks "$1" || return 0
	shift
	unknowns "$reason" "$@"
	return 1
}

# locks KEY sets $locks, the kernel's list of them, or says by KEY why not. A program reads it in one
# piece: a shell reads a byte at a time, the kernel lists the rest anew for each, and rows are missed
# while others come and go.
locks() {
	has cat "$1" || return 1
	if ! locks=$(cat "$R/proc/locks"); then unknown "$1" "/proc/locks may not be read"; return 1; fi
}

# legible FILE KEY: whether it may be read; else what it says is not known
legible() {
	[ -r "$1" ] && return
	unknown "$2" "no permission to read $1"
	return 1
}

# kind_of PATH sets $kind. "hidden": a folder above it may not be searched, so nobody can say.
kind_of() {
	if [ -h "$1" ]; then kind=link
	elif [ -f "$1" ]; then kind=file
	elif [ -d "$1" ]; then kind=dir
	elif [ -e "$1" ]; then kind=other
	else
		kind=absent up=$1
		while up=${up%/*} && [ "$up" ]; do
			if [ -e "$up" ]; then
				if [ -d "$up" ] && [ ! -x "$up" ]; then kind=hidden; fi
				break
			fi
		done
	fi
}

# runs FILE: whether it is a program, and not empty
runs() { [ -s "$1" ] && [ -x "$1" ]; }

# line KEY FILE: the first line of a file of the kernel's
line() {
	value=
	if [ ! -e "$2" ]; then absent "$1"
	elif read -r value <"$2" || [ "$value" ]; then put "$1" "$value"
	else unknown "$1" "$2 is empty or may not be read"; fi
}

# text KEY FILE: a whole file, one byte more than the reader accepts, so that it sees an excess
text() {
	if [ ! "$2" ]; then absent "$1"; return; fi
	if [ "$stuck" ]; then unknown "$1" "the file system of $2 does not answer"; return; fi
	small "$1" "$2" && return
	kind_of "$2"
	if [ ! -f "$2" ]; then
		case $kind in
		hidden) unknown "$1" "no permission to look at $2" ;;
		link) unknown "$1" "$2 is a link to something that cannot be read" ;;
		*) absent "$1" ;;
		esac
	elif ! legible "$2" "$1" || ! has od "$1"; then :
	elif hex=$(od -An -v -tx1 -N 65537 <"$2"); then
		key=$1
		IFS=$nl
		set -- $hex
		IFS=
		printf '%s x%s\n' "$key" "$*"
		IFS=$ifs
	else unknown "$1" "$2 could not be read"; fi
}

# digest KEY FILE: of at most 4 MiB; a file full of holes is as large as somebody says
digest() {
	if [ ! "$2" ]; then absent "$1"; return; fi
	kind_of "$2"
	if [ "$kind" = hidden ]; then unknown "$1" "no permission to look at $2"
	elif [ ! -f "$2" ]; then absent "$1"
	elif ! legible "$2" "$1" || ! has sha256sum "$1" || ! has stat "$1"; then :
	elif size=$(stat -L -c %s -- "$2") && [ "$size" -gt 4194304 ]; then
		unknown "$1" "$2 is larger than 4 MiB"
	elif sum=$(sha256sum <"$2"); then put "$1" "${sum%% *}"
	else unknown "$1" "$2 could not be read"; fi
}

# ended SECONDS COMMAND...: what can hang (a dead file server, a broken program) is given up, and
# killed where it does not care; alone is the same for a process that does nothing else
limit=${PG_LIMIT-} machine=
if [ "${PG_LIMIT+known}" ]; then :
else
	read -r machine <"$R/proc/sys/kernel/arch" # since Linux 6.1
	tool=$(command -v timeout)
	# That of the GNU coreutils is a file, and knows "-k"; others are links to programs of many names.
	if [ "$machine" ] && [ -f "$tool" ] && [ ! -h "$tool" ]; then limit=-k2
	elif machine=$(timeout -k2 5 uname -m) || timeout -k2 5 true; then limit=-k2
	elif timeout 5 true; then limit=--; fi
fi
alone() {
	if [ "$limit" ]; then exec timeout "$limit" "$@"; fi
	shift
	exec "$@"
}
ended() {
	if [ "$limit" ]; then timeout $limit "$@"; else
		shift
		"$@"
	fi
}

# heard is what comes up to the mark with which it ends, 20,000 lines and 64 MiB at most. Only the
# command is waited for: what it leaves behind may hold its output open for ever.
mark=pyinfra-gpu-ended
heard() {
	ulimit -v 65536
	n=0
	while [ $n -lt 20000 ] && IFS= read -r row; do
		n=$((n + 1))
		printf '%s\n' "$row"
		case $row in "$mark "[0-9]*) return ;; esac
	done
}

# bounded COMMAND...: of what has a limit of its own, its status, and in $said what it says on both
# channels. It is for what others than the system itself put there.
bounded() {
	said=$({ "$@" 2>&1; printf '\n%s %s\n' $mark $?; } | heard)
	case $said in
	*"$nl$mark "[0-9] | *"$nl$mark "[0-9][0-9] | *"$nl$mark "[0-9][0-9][0-9])
		code=${said##*"$nl$mark "} said=${said%"$nl$mark "*} said=${said%"$nl"}
		;;
	*) said="it said too much" code=1 ;; # `##` for what is not there takes for ever in dash
	esac
	return $code
}

# together SECONDS TEXT WORD...: one process asks several programs, all within one limit, which costs
# a program for each less. TEXT is of lines "a NAME PROGRAM..." and has the words as $1 and so on. With
# $reader, that hears it in place of `heard`. What they said is for `answer`.
together() {
	seconds=$1 text=$2 first='' said='' n=0
	shift 2
	[ "$text" ] || return 0
	rows=$({
		ended $seconds sh -c 'a() { n=$1; shift; "$@" 2>&1; printf "\n%s %s %s\n" "$0" $n $?; }'"$nl$text" $mark "$@"
		printf '\n%s %s\n' $mark $?
	} | ${reader:-heard})
	IFS=$nl
	set -f
	for row in $rows; do
		case $row in
		"$mark 124" | "$mark 137" | "$mark 143")
			# The first has had all of the time.
			name=$nl$text name=${name#*"${nl}a "} name=${name%% *}
			[ "$first" ] || eval "said_$name='' code_$name=124"
			;;
		"$mark "[a-z]*)
			row=${row#* } name=${row%% *} code=${row##* } first=$row
			case $name:$code in
			*[!a-z0-9:]* | *:????* | *:) ;;
			*:*[!0-9]*) ;;
			*) eval "said_$name=\$said code_$name=$code" ;;
			esac
			said='' n=0
			;;
		*)
			# It takes the square of their number; who says more is asked alone, and who comes after.
			n=$((n + 1))
			[ $n -le 9999 ] || break
			said=$said${said:+"$nl"}$row
			;;
		esac
	done
	set +f
	IFS=$ifs
}

# answer NAME SECONDS COMMAND...: the same as `bounded ended SECONDS COMMAND...`; nothing is asked that
# `together` has asked by that name. Whoever was not done within that limit is asked alone, so that it
# is known who was late.
answer() {
	eval "said=\${said_$1-} code=\${code_$1-}"
	shift
	if [ "$code" ]; then return $code; fi
	bounded ended "$@"
}

# why STATUS OUTPUT sets $reason
why() {
	case $1 in
	124 | 137 | 143) reason="it did not answer in time" ;;
	*) reason=${2%%"$nl"*} reason=${reason:-"it ended with status $1 and said nothing"} ;;
	esac
}
