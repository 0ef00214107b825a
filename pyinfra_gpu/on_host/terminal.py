"""Text for a terminal of 80 columns, made of words that hosts, logs and data wrote.

Everything that is printed goes through `one_line`, so that no escape sequence of a host reaches the
terminal of whoever reads about it.
"""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import TextIO

WIDTH = 80
"""Columns; no line that is made here is longer, but for a command that must stay whole."""

NARROWEST = 20
"""Columns that are written for at the least, however few a terminal has."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[@-Z\\-_=>]"
)
# Control characters, what turns the direction of writing or has no width, halves of characters.
_ODD = "\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
_CONTROL = re.compile(f"[{_ODD}]")
_CONTROL_OR_BREAK = re.compile(f"[{_ODD}\t\n\u2028\u2029]+")

_QUOTED = re.compile(r"`([^`]{1,400})`")
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*"|['"])+""")
_NO_ESCAPES = ("dumb", "unknown")
_GLUE = "\ue000"  # stands for a blank at which a line must not break


def without_escapes(text: str) -> str:
    """Return `text` without colours and control characters; line breaks and tabs are kept."""
    if text.isprintable():  # then there are none; and most lines are
        return text
    text = _ESCAPES.sub("", text) if "\x1b" in text else text
    return _CONTROL.sub("", text)


def visible(text: str) -> str:
    r"""Return `text` with its control characters as `\xNN`; line breaks and tabs are kept.

    For what is compared with what is declared: a value that had them taken out could pass for
    another one.
    """
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return `text` on one line: escape sequences are gone, other control characters a blank."""
    text = _ESCAPES.sub("", text) if "\x1b" in text else text
    return _CONTROL_OR_BREAK.sub(" ", text).strip()


def shortened(text: str, limit: int) -> str:
    """Return `text` on one line, its blanks single, cut at `limit` characters."""
    text = " ".join(one_line(text).split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def draws(stream: TextIO) -> bool:
    """Tell whether a stream goes to a terminal that knows colours and more than lines."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in _NO_ESCAPES


def columns() -> int:
    """Return how wide the terminal is that is printed to; 80 where there is none."""
    return max(NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns)


def paragraph(text: str, first: str = "", others: str = "", *, width: int = WIDTH) -> list[str]:
    """Return a paragraph's lines; no word and no command in backquotes is broken.

    + first, others: what stands before the first line and before the others
    + width: columns of the terminal
    """
    lines = textwrap.wrap(
        _QUOTED.sub(lambda found: found[0].replace(" ", _GLUE), one_line(text)),
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [line.replace(_GLUE, " ") for line in lines] or [first.rstrip()]


def some(parts: Sequence[str], most: int, *, total: int | None = None) -> str:
    """Return at most so many of the parts as one phrase: "a, b and 3 more".

    + total: how many there are, where `parts` holds the first of them only
    """
    more = (len(parts) if total is None else total) - most
    shown = ", ".join(parts[:most])
    return f"{shown} and {more} more" if more > 0 else shown


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield a table's lines; one row after the other where the terminal is too narrow for it."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    fits = sum(widths) + 2 * (len(widths) - 1) <= width
    for row in (head, *rows) if rows and fits else rows:
        cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=True)]
        yield "  ".join(cells if fits else filter(None, row)).rstrip()


def command(text: str, indent: str, width: int = WIDTH) -> list[str]:
    """Return a command over as many lines as it needs, which a shell takes as one."""
    lines = [""]
    for word in _WORD.findall(one_line(text)):
        # The quoted parts of a word stay together; two columns are for the backslash.
        if lines[-1] and len(indent) + len(lines[-1]) + 1 + len(word) + 2 > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return [f"{indent}{line} \\" for line in lines[:-1]] + [f"{indent}{lines[-1]}"]
