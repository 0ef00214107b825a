# Shows a host that boots its simulated hardware.
#   sh connect_gpus.sh                                   in the root folder of the host, see boot.sh
# Runs with every right, before the machine's own first process. Only the folder `hardware` is read,
# which the machine cannot write. A host without GPU has none.
set -eu
[ -d ../hardware ] || exit 0
mkdir -p run/rehearsal/driver run/rehearsal/module run/rehearsal/work
cp -R ../hardware/. run/rehearsal
mount --bind run/rehearsal/pci sys/bus/pci/devices
mount --bind run/rehearsal/firmware sys/firmware
mount --bind run/rehearsal/driver proc/driver
layers="lowerdir=sys/module,upperdir=run/rehearsal/module,workdir=run/rehearsal/work"
mount -t overlay overlay -o "$layers" sys/module
