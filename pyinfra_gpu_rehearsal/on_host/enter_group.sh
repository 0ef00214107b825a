# Starts a program in a control group, detached from the caller.
#   sh enter_group.sh GROUP LOG PROGRAM...       what it prints is appended to LOG
# This shell enters the group before it starts anything, so that no process is ever outside.
echo 0 >"$1/cgroup.procs" || exit 1
shift
log=$1
shift
exec setsid --fork "$@" </dev/null >>"$log" 2>&1
