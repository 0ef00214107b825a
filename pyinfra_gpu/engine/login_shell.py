"""Commands in a form that every login shell hands on: sshd gives them to the user's own shell."""

from __future__ import annotations

_DECODED = 'eval "$(printf %b "$1")"'
# What csh and its kind, and fish, read otherwise than a POSIX shell between single quotes.
_ODD = str.maketrans({each: f"\\0{ord(each):03o}" for each in "\n\\'!"})


def one_line(command: str) -> str:
    """Return a command of the POSIX shell such that any login shell has `sh` run it.

    csh and tcsh know no line break between quotes, where all of our programs have some, and look
    for `!` there; fish reads backslashes. What is plain stays as it is, for whoever reads a log.
    """
    if not set(command) & {"\n", "!"}:
        return command
    return f"sh -c '{_DECODED}' sh '{command.translate(_ODD)}'"
