#!/bin/sh
# Prints what says how a host is set up for its GPUs; changes nothing, and reads nothing of a user's.
#
#   sh system.sh MARK
#
# MARK and `item`: see item.sh

item names 'uname -n; hostname -f 2>/dev/null || uname -n; getent passwd | awk -F: "\$3 >= 1000 && \$3 < 60000 {print \$1}"'
item os-release 'cat /etc/os-release; uname -a; cat /proc/version /proc/cmdline'
item hardware 'lspci -nnk -d 10de:; lscpu; cat /proc/meminfo | head -5'
item file-systems 'df -lhP; df -liP; findmnt -lno TARGET,FSTYPE,OPTIONS -t ext4,xfs,btrfs,overlay,zfs,tmpfs'
item secure-boot 'mokutil --sb-state; mokutil --list-enrolled | grep -E "Subject:|SHA1"'
item nvidia-smi 'nvidia-smi -q'
item nvidia-smi-topology 'nvidia-smi topo -m; nvidia-smi -L'
item nvidia-processes 'nvidia-smi --query-compute-apps=gpu_bus_id,used_memory --format=csv'
item module-loaded 'cat /proc/driver/nvidia/version /sys/module/nvidia/version; lsmod | grep -E "nvidia|nouveau|nova"'
item module-on-disk 'modinfo nvidia; ls -l /lib/modules/*/updates/dkms /lib/modules/*/kernel/drivers/char/drm 2>/dev/null'
item module-settings 'grep -rn -E "nvidia|nouveau|nova" /etc/modprobe.d /usr/lib/modprobe.d /etc/modules-load.d'
item kernel-log 'journalctl -k -b --no-hostname -o short-monotonic | grep -iE "nvrm|nvidia|xid|nouveau|nova|secure boot|oom" || dmesg | grep -iE "nvrm|nvidia|xid|nouveau|nova|oom"'
item dkms 'dkms status; ls -l /var/lib/dkms/nvidia/ /var/lib/dkms/nvidia*/*'
item dkms-log 'for log in /var/lib/dkms/nvidia*/*/build/make.log /var/lib/dkms/nvidia*/*/*/*/log/make.log; do [ -f "$log" ] && echo "-- $log" && tail -n 60 "$log"; done'
item libraries 'ldconfig -p | grep -E "libcuda|libnvidia|libnccl|libcudnn"; ls -l /usr/lib/*/libcuda* /usr/lib64/libcuda*; update-alternatives --get-selections | grep -E "nvidia|cuda|glx"'
item toolkits 'ls -ld /usr/local/cuda*; ls -l /etc/alternatives/cuda*; for nvcc in /usr/local/cuda*/bin/nvcc; do [ -x "$nvcc" ] && "$nvcc" --version | tail -n 2; done'
item services 'systemctl --no-pager --full status nvidia-persistenced nvidia-fabricmanager'
item containers 'command -v docker podman nvidia-ctk; nvidia-ctk --version'
