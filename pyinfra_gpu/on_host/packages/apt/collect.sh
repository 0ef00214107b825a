#!/bin/sh
# Prints what says which packages of a driver there are, and from where they come; changes nothing.
#
#   sh collect.sh MARK
#
# MARK and `item`: see collect/item.sh

item packages 'dpkg-query -W -f "\${db:Status-Abbrev} \${Package}:\${Architecture} \${Version}\n" "*nvidia*" "libcuda*" "cuda*" "libnv*" "libcudnn*" "dkms" "linux-image-*" "linux-headers-*"'
item holds 'apt-mark showhold'
item apt-policy 'apt-cache policy; apt-cache policy $(dpkg-query -W -f "\${Package}\n" "*nvidia*" "libcuda*" "cuda-drivers*" "dkms" 2>/dev/null | sort -u | head -60)'
item apt-pins 'tail -n +1 /etc/apt/preferences /etc/apt/preferences.d/*'
item apt-sources 'tail -n +1 /etc/apt/sources.list /etc/apt/sources.list.d/*'
item apt-history 'tail -n 120 /var/log/apt/history.log'
item timers 'systemctl list-timers --no-pager apt-daily\* unattended\*'
