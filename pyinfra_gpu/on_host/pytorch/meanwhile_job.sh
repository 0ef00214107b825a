# Runs COMMAND for at most SECONDS, and says how that went and what it took; see meanwhile.sh.
#
#     meanwhile_job.sh PLACE SECONDS COMMAND
#
# It prints "pyinfra-gpu-meanwhile done TOOK", or "... failed TOOK" behind lines "... said LINE" of
# what COMMAND printed at last. Other work goes first on the processors.

place=$1 seconds=$2
now() {
	read -r up _ </proc/uptime
	echo "${up%.*}"
}

began=$(now)
setpriv --pdeathsig TERM nice timeout -k 5 "$seconds" sh -c "$3" >"$place.log" 2>&1 &
if wait $!; then
	end=done
else
	end=failed
	tail -n 12 -- "$place.log" | sed 's/^/pyinfra-gpu-meanwhile said /'
fi
rm -f -- "$place.log" "$place.txt"
echo "pyinfra-gpu-meanwhile $end $(($(now) - began))"
