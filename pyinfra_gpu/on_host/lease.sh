# Hold this host for one run, for as long as its connection stands. Nobody is waited for.
#
#     lease.sh FILE SILENT WHO
#
# FILE is locked, and says WHO (one line); it is in a folder that only this user writes. What is
# printed begins with "pyinfra-gpu-lease": "taken", "busy WHO" where another run has it, or
# "failed WHY".
#
# The run says on standard input, more often than every SILENT seconds, that it is still there: a
# connection whose other end vanished without a word stands for hours.

file=$1 silent=$2 who=$3
umask 022
echo # a greeting may have ended without a line break
tell() { printf 'pyinfra-gpu-lease %s\n' "$*"; }

if ! mkdir -p "${file%/*}" || ! { : >>"$file"; } 2>/dev/null; then
	tell "failed $file cannot be written"
	exit 1
fi
if ! command -v flock >/dev/null; then tell "failed flock is not on this host"; exit 1; fi
exec 9>>"$file"
if ! flock -n 9; then
	[ -s "$file" ] || sleep 0.2 # who has just taken it is about to say who that is
	tell "busy $(head -n 1 "$file" | head -c 300)"
	exit 1
fi
printf '%s since %s\n' "$who" "$(date -u '+%Y-%m-%d %H:%M UTC')" >"$file"
tell taken
while [ "$(timeout "$silent" head -c 1 9>&-)" ]; do :; done
[ ! -e "$file" ] || : >"$file" # whoever removes us takes it away
