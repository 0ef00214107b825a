"""What goes to standard error: as wide as the terminal, and where there is none each line whole."""

from __future__ import annotations

import sys

from ..terminal import columns, paragraph


def say(text: str) -> None:
    """Print a refusal or a warning, whose further lines may be indented."""
    if not sys.stderr.isatty():  # the controller folds it by itself, and a pipe needs no lines
        print(text, file=sys.stderr)
        return
    for line in text.splitlines():
        before = " " * (len(line) - len(line.lstrip(" ")))
        folded = paragraph(line, before, f"{before}  ", width=columns())
        print("\n".join(folded), file=sys.stderr)
