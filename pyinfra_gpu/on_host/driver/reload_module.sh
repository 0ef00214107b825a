# Exchange the loaded module of the driver for the installed one.
#
# $@: services that hold it and may be stopped meanwhile; PG_ROOT puts another tree in the place of /
#
# What runs and what is loaded is noted first, and put back whatever ends this: also where the old
# module stays, where somebody ends it, and where the connection is lost, on which it could write.

stopped='' loaded='' code=1

put_back() {
	trap '' HUP INT TERM PIPE
	for module in $loaded; do modprobe "$module" 2>/dev/null; done
	modprobe nvidia && modprobe nvidia_uvm || code=1
	if [ "$stopped" ]; then systemctl start $stopped || code=1; fi
	exit $code
}
trap put_back EXIT
trap 'code=1; exit' HUP INT TERM PIPE

for unit in "$@"; do
	if systemctl is-active --quiet "$unit"; then stopped="$stopped $unit"; fi
done
# In the order in which one needs the other, which is the reverse of that in which they go.
for module in nvidia_peermem nvidia_uvm nvidia_modeset nvidia_drm; do
	if [ -d "${PG_ROOT-}/sys/module/$module" ]; then loaded="$loaded $module"; fi
done
if [ "$stopped" ]; then systemctl stop $stopped; fi
code=0
for module in nvidia_drm nvidia_modeset nvidia_uvm nvidia_peermem nvidia; do
	if [ -d "${PG_ROOT-}/sys/module/$module" ]; then modprobe -r "$module" || { code=1; break; }; fi
done
