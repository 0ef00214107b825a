"""A table of runs for a terminal of any width: rows, or cells below each other where it is narrow.

The host prints its own runs by it, and the controller those of all hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..terminal import cut, one_line, wrapped

Style = Callable[[str, str], str]
"""Colours a word after what it says."""

_BETWEEN = "  "


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    state: int,
    style: Style = lambda text, word: text,
) -> Iterator[str]:
    """Yield the lines of a table, none of them wider than the terminal.

    Columns behind the state for which there is no room are left out, from the right. Where there
    is none for the state either, each row is a line with its first cells, and below it, indented,
    the others.

    + state: the column that has to be seen, and is coloured
    """
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    while _total(widths) > width and len(widths) > state + 1:
        widths.pop()
    if _total(widths) > width:
        yield from _below(head, rows, width, state, style)
        return
    for number, row in enumerate([list(head), *rows]):
        cells = [cell.ljust(each) for cell, each in zip(row, widths, strict=False)]
        start = _total(widths[:state]) + (len(_BETWEEN) if state else 0)
        word, line = row[state], _BETWEEN.join(cells).rstrip()
        if number and word:
            line = line[:start] + style(word, word) + line[start + len(word) :]
        yield line


def _below(
    head: Sequence[str], rows: Sequence[Sequence[str]], width: int, state: int, style: Style
) -> Iterator[str]:
    for row in rows:
        if state:
            yield from wrapped(" ".join(filter(None, row[:state])), "", " ", width=width)
        told = [
            cell if column == state else f"{head[column]} {cell}"
            for column, cell in enumerate(row)
            if column >= state and cell not in ("", "-")
        ]
        for line in wrapped(", ".join(told), "  ", "  ", width=width) if told else ():
            word = row[state]
            whole = word and line.startswith(f"  {word}")
            yield f"  {style(word, word)}{line[2 + len(word) :]}" if whole else cut(line, width)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_BETWEEN) * max(0, len(widths) - 1)
