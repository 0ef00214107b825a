# What must come through the gate unharmed: a program of several lines, its input, both of its
# outputs, and its exit status.
read -r first
cat <<'END' >&2
$HOME "quoted" 'twice'
END
printf '%s|%s|' "$first" "${SSH_ORIGINAL_COMMAND-none}"
sudo -n id -un
cat
exit 7
