# Called by apt before dpkg starts (DPkg::Pre-Install-Pkgs, protocol version 3: apt.conf(5)), during
# our own transaction only. PYINFRA_GPU_ALLOWED has a line "PACKAGE VERSION" for each package that may
# be installed and "PACKAGE -" for each that may be removed. Anything else stops apt while nothing is
# changed: what is done must be what was simulated and judged.

read -r word number
if [ "$word $number" != "VERSION 3" ]; then
	echo "E: pyinfra-gpu: apt speaks another protocol ($word $number)" >&2
	exit 1
fi
# apt tells its whole configuration first, up to an empty line.
while IFS= read -r line && [ "$line" ]; do :; done

# PACKAGE OLD ARCHITECTURE MULTIARCH SIGN NEW ARCHITECTURE MULTIARCH ACTION
stopped=0
while read -r package _ _ _ _ new _ _ action; do
	# A package that is only configured was unpacked earlier, and judged then.
	if [ "$action" = '**CONFIGURE**' ]; then continue; fi
	if [ "$action" = '**REMOVE**' ]; then new=-; fi
	if ! echo "$PYINFRA_GPU_ALLOWED" | grep -qxF -- "$package $new"; then
		echo "E: pyinfra-gpu: apt would do what it did not simulate: $package $new" >&2
		stopped=1
	fi
done
exit $stopped
