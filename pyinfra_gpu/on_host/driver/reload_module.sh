# Exchange the loaded module of the driver for the installed one.
#
# $@: services that hold it and may be stopped meanwhile
#
# What runs is noted first and started again whatever happens, also where the old module stays.

stopped=
for unit in "$@"; do
    if systemctl is-active --quiet "$unit"; then stopped="$stopped $unit"; fi
done
if [ "$stopped" ]; then systemctl stop $stopped; fi
code=0
for module in nvidia_drm nvidia_modeset nvidia_uvm nvidia_peermem nvidia; do
    if [ -d "/sys/module/$module" ]; then modprobe -r "$module" || { code=1; break; }; fi
done
modprobe nvidia || code=1
modprobe nvidia_uvm || code=1
if [ "$stopped" ]; then systemctl start $stopped || code=1; fi
exit $code
