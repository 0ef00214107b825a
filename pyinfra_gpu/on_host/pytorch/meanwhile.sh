# Runs JOB beside what else is done on this host, for as long as its run's connection stands.
#
#     meanwhile.sh PLACE SILENT JOB
#
# JOB is a command line of meanwhile_job.sh. It works in the folder PLACE, which is removed in the end,
# and so is what is called PLACE.*; the folder that PLACE is in is locked meanwhile. What is printed
# begins with "pyinfra-gpu-meanwhile": "begun", then "alive" now and then, or "failed WHY" at once.
#
# The run says on standard input, more often than every SILENT seconds, that it is still there. Where
# it does not, JOB is ended with all that it started. Each process of it asks the kernel to be told
# when the one that waits for it is gone, however that came.

place=$1 silent=$2
trap '' PIPE # who listens no more sends no more either
umask 022
echo # a greeting may have ended without a line break
tell() { printf 'pyinfra-gpu-meanwhile %s\n' "$*"; }

exec 9<"${place%/*}" || { tell "failed ${place%/*} cannot be read"; exit 1; }
if ! flock -n 9; then
	tell "failed what an earlier run began is still at work"
	exit 1
fi
rm -rf -- "$place"
setpriv --pdeathsig TERM sh -c "exec $3" </dev/null &
job=$!
tell begun
while [ "$(timeout "$silent" head -c 1 9<&-)" ]; do tell alive; done
kill "$job" 2>/dev/null
exec 9<&-
# What is left of it holds the lock, too, until it has ended.
flock -w 15 "${place%/*}" rm -rf -- "$place" "$place.log" "$place.txt"
