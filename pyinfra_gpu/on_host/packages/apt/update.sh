#!/bin/sh
# Fetches the lists of packages; waits where another process is about to do the same.
#
#   sh update.sh SECONDS COMMAND...
#
# DPkg::Lock::Timeout, see apt-get(8), is for the lock of dpkg alone. At that of the lists apt-get
# fails at once, and a login, a timer or another administrator takes it at any time.
set -u
left=$1
shift
while :; do
	said=$(env LC_ALL=C "$@" 2>&1)
	status=$?
	case $said in
	*'/lists/lock'*) ;;
	*) break ;;
	esac
	if [ $status = 0 ] || [ "$left" -le 0 ]; then break; fi
	left=$((left - 2))
	sleep 2
done
printf '%s\n' "$said"
exit $status
