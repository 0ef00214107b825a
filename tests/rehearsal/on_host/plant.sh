#!/bin/sh
# As the owner of a prefix: puts something hostile in the place of what is PATH. Planted programs
# write as whom they run to /var/tmp/trace.
#
#   sh plant.sh KIND PATH
set -u
kind=$1 path=$2
rm -rf -- "$path"
mkdir -p /var/tmp/trace
chmod 1777 /var/tmp/trace
case $kind in
file) ln -s /etc/shadow "$path" ;;
directory) ln -s /etc "$path" ;;
shared) ln -s /tmp "$path" ;;
fifo) mkfifo "$path" ;;
sparse) truncate -s 200G "$path" ;;
hard) ln /etc/hostname "$path" 2>/dev/null || : ;; # where the kernel lets a user
crowd)
	mkdir "$path"
	(cd "$path" && seq 100000 | xargs touch)
	;;
program)
	printf '#!/bin/sh\nid -u >"$(mktemp /var/tmp/trace/XXXXXX)"\nexec sleep 0\n' >"$path"
	chmod 755 "$path"
	;;
esac
