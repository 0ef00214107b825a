# MARK, the first argument of whoever uses this, is a random word: "MARK item NAME" begins an item,
# "MARK status" ends it.
set -u
mark=$1
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"

# item NAME COMMAND: at most 20 s of it and its last 48 KiB
item() {
	printf '\n%s item %s\n' "$mark" "$1"
	timeout -k 2 20 sh -c "$2" 2>&1 </dev/null | tail -c 49152
	printf '\n%s status\n' "$mark"
}

