uid=
while read -r name real rest; do
	if [ "$name" = Uid: ]; then uid=$real; fi
done </proc/self/status
uid=${uid:-$(id -u)}
machine=$(uname -m)
# As packages are named for it.
case $machine in
x86_64) native=amd64 ;;
aarch64) native=arm64 ;;
*) native=$machine ;;
esac

choose_owner
known_before
PG_LEFT=$(left)

printf 'pyinfra-gpu-probe 1\n'
# Each concern in a process of its own: whatever goes wrong in one, the others are told.
(system)
(gpus)
printf 'nvidia.asked =%s\n' "${PG_NVIDIA:-0}"
(driver)
(packages)
(package_lock)
(storage)
(layout)
(believed smoke.stamp "$PG_STAMP")
if [ "$PG_NVIDIA" ]; then
	(kernel)
	(nvidia_packages)
	(cuda)
	(libcuda)
	(power)
fi
(owners_part)
printf 'pyinfra-gpu-probe end\n'
exit 0
