# Build the driver's module for one kernel by DKMS, and have it installed there.
#
# $1: version of the driver's packages; $2: the kernel
#
# DKMS calls a module installed whose file is gone, and then does nothing; `--force` puts back what
# it has built, and where it has nothing, the module is forgotten for this kernel and built anew.
# A failed build ends with its own last error, which DKMS only hides in a file.

version=$1 kernel=$2 name=
for conf in /usr/src/nvidia*-"$version"/dkms.conf; do
    [ -f "$conf" ] || continue
    name=$(sed -n 's/^PACKAGE_NAME="\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$conf")
done
if [ ! "$name" ]; then echo "no source of module $version in /usr/src for DKMS"; exit 1; fi
dkms install --force -m "$name" -v "$version" -k "$kernel" && exit
dkms remove -m "$name" -v "$version" -k "$kernel" >/dev/null 2>&1
dkms status -m "$name" -v "$version" | grep -q . || dkms add -m "$name" -v "$version"
dkms install --force -m "$name" -v "$version" -k "$kernel" && exit
log=/var/lib/dkms/$name/$version/build/make.log
said=$(grep -iE 'error|fail' "$log" 2>/dev/null | grep -v '^make' | tail -n 1)
echo "${said:-no error is in the log of make}; see $log there"
exit 1
