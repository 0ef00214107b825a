# Note why this host is rebooted, and reboot it a second later, when this connection has its answer.
#
# $1: file that keeps, for each reboot, time, boot_id and reason; $2: the reason, on one line
#
# Prints the boot_id. Without a note one reboot would follow the other, so then there is none.

umask 022
boot=$(cat /proc/sys/kernel/random/boot_id) && mkdir -p "${1%/*}" || exit
notes=$(tail -n 49 "$1" 2>/dev/null)
printf '%s\n' ${notes:+"$notes"} "$(date +%s) $boot $2" >"$1.new" || exit
sync "$1.new" && mv "$1.new" "$1" || exit
echo "$boot"
setsid sh -c 'sleep 1; systemctl reboot -i || reboot' </dev/null >/dev/null 2>&1 &
