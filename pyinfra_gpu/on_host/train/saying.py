"""What goes to standard error: as wide as the terminal, and where there is none each line whole."""

from __future__ import annotations

import sys

from ..terminal import columns, unbroken, wrapped


def say(text: str) -> None:
    """Print a refusal or a warning, whose further lines may be indented."""
    if not sys.stderr.isatty():  # the controller folds it by itself, and a pipe needs no lines
        print(text, file=sys.stderr)
        return
    for line in text.splitlines():
        before = " " * (len(line) - len(line.lstrip(" ")))
        # Of a command that is longer than a line no part goes to the next one.
        folded = wrapped(unbroken(line), before, f"{before}  ", whole_words=True, width=columns())
        print("\n".join(folded), file=sys.stderr)
