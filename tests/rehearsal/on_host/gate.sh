#!/bin/sh
# Stands between sshd and each command of a run, as its ForceCommand: numbers the commands, keeps
# what each was, and lets one wait before it begins until a test has decided what becomes of it.
#
# Below /var/lib/gate, where every user may write:
#   commands/N   the N-th command that was asked for, whole
#   hold         a number: this command, and each one after it, waits
#   go/N         what becomes of one that waits: "run", anything else ends it before it began
set -u
gate=/var/lib/gate
set -- "$gate"/taken/* # as many words as are taken, or one: it need not try each from 1
number=$#
until mkdir "$gate/taken/$number" 2>/dev/null; do
  number=$((number + 1))
  [ "$number" -le 9999 ] || exit 75
done
printf '%s\n' "$SSH_ORIGINAL_COMMAND" >"$gate/begun.$number"
mv "$gate/begun.$number" "$gate/commands/$number"
if [ -e "$gate/hold" ] && [ "$number" -ge "$(cat "$gate/hold")" ]; then
  waited=0 # twentieths of a second; a test that died lets nothing wait for ever
  until [ -e "$gate/go/$number" ]; do
    waited=$((waited + 1))
    [ "$waited" -le 12000 ] || exit 75
    sleep 0.05
  done
  [ "$(cat "$gate/go/$number")" = run ] || exit 75
fi
# What sshd itself would have done. The numbers must not be seen by what runs.
command=$SSH_ORIGINAL_COMMAND
unset SSH_ORIGINAL_COMMAND
exec "$SHELL" -c "$command"
