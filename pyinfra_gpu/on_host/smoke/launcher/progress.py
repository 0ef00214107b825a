"""What a person sees while the test runs: one line a check, each labelled with the mode."""

from __future__ import annotations

import os
import sys
import textwrap

from ..judge.verdict import CheckResult

_WIDTH = 72
"""A terminal's 80 columns, less the host's name that pyinfra puts before each line."""


class Announcer:
    """Prints lines that begin with the mode, so that no line can be taken for another's result."""

    def __init__(self, mode: str) -> None:
        self._label = f"[{mode}] "

    def quote(self, line: str) -> None:
        """Print a line of somebody's log, cut to the width."""
        self._print(f"{self._label}| {line}"[:_WIDTH])

    def say(self, text: str) -> None:
        """Print `text`, wrapped to the width."""
        width = _WIDTH - len(self._label)
        for line in textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False):
            self._print(self._label + line)

    def check(self, result: CheckResult) -> None:
        """Print one check, with its detail where that fits; a failure's is printed at the end."""
        seconds = "" if result.seconds is None else f"{result.seconds:.2f} s"
        line = f"{self._label}{result.id:<23} {result.status:<5}{seconds:>8}"
        room = _WIDTH - len(line) - 2
        self._print(f"{line}  {result.detail}" if 0 < len(result.detail) <= room else line)

    def _print(self, line: str) -> None:
        """Print now; a reader that has gone (a lost connection) must not end the test."""
        try:
            print(line, flush=True)
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
