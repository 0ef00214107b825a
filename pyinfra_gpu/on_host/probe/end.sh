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

printf 'pyinfra-gpu-probe 1\n'
tick=${PG_TICK:-5}
ticks=$((${PG_SECONDS:-50} / tick))
watch='' stuck=''
trap 'woken=1' USR1
if have sleep; then
	# Wakes us every so many seconds, for as long as we live.
	(
		trap 'kill $nap; exit' TERM
		while :; do
			sleep $tick &
			nap=$!
			wait $nap && kill -USR1 $$ || exit
		done
	) >/dev/null &
	watch=$!
fi

# told KEY COMMAND...: a concern, in a process of its own: whatever goes wrong in one, the others
# are told. One that hangs for good, in a file system that is gone, is left to itself.
told() {
	key=$1 patience=5
	shift
	if [ $ticks -le 0 ]; then put look.late "$key"; return 1; fi
	"$@" &
	while
		woken=
		wait $!
		[ "$woken" ]
	do
		ticks=$((ticks - 1)) patience=$((patience - 1))
		if [ $ticks -le 0 ] || [ $patience -le 0 ]; then
			kill -9 $!
			put look.late "$key"
			return 1
		fi
	done
}
# below KEY COMMAND...: the same, of what is below the prefix, where one is like the others
below() {
	if [ "$stuck" ]; then put look.late "$1"
	else told "$@" || stuck=1; fi
}
smoke() { text smoke.stamp "$PG_STAMP"; text smoke.verdict "$PG_VERDICT"; }

told system system
told gpus gpus
printf 'nvidia.asked =%s\n' "${PG_NVIDIA:-0}"
told driver driver
told packages packages
told packages.lock package_lock
below storage storage
below layout layout
below torch torch
below environment text environment.text "$PG_ENV_FILE"
below training training
below smoke smoke
if [ "$PG_NVIDIA" ]; then
	told kernel kernel
	told nvidia nvidia_packages
	told cuda cuda
	told libcuda libcuda
	told power power
fi
[ "$watch" ] && kill $watch
printf 'pyinfra-gpu-probe end\n'
exit 0
