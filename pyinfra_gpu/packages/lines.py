"""Lines that a program printed, cut to what a sentence can take."""

from __future__ import annotations

from collections.abc import Sequence


def last(lines: Sequence[str]) -> str:
    """Return the last line, shortened; a sentence where there is none."""
    return shortened(lines[-1]) if lines else "nothing; try the command by hand (-vv)"


def shortened(text: str, limit: int = 240) -> str:
    """Return the text on one line, cut at `limit` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
