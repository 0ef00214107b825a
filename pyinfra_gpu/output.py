"""Printing an answer to a standard output that may be closed, full, or of few characters."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

ENOUGH = 141
"""As the shell has it for a program that a closed pipe ended: 128 + SIGPIPE."""

NOT_WRITTEN = 1


def show(answer: str, verb: str) -> int:
    """Print `answer`; return 0, or the exit code where that was not possible.

    + verb: of the command line, for the sentence that says so on standard error

    A reader that has seen enough (``| head``) is no error of ours: nothing is said.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a log may hold what a terminal cannot
    try:
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    except OSError as error:
        # Python flushes once more at its end, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return ENOUGH
        text = f"pyinfra-gpu {verb}: the answer cannot be written: {error.strerror}"
        sys.stderr.write(f"{text}\n")
        return NOT_WRITTEN
    return 0
