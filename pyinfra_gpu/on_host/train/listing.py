"""The runs of a host as a table: of `list` on the host, and of the controller for several hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..terminal import WIDTH, wrapped

Style = Callable[[str, str], str]
"""Colours a text after what a word says."""


def duration(seconds: float) -> str:
    """Return a time in its two largest units, such as "1 h 39 min"."""
    whole = max(0, round(seconds))
    for size, unit, smaller, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {below}" if rest else "")
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min" + (f" {rest} s" if rest and minutes < 10 else "")


def step_words(known: Mapping[str, Any]) -> str:
    step, steps = known.get("step"), known.get("steps")
    return "" if step is None else f"{step:,}" + (f"/{steps:,}" if steps else "")


def loss_words(known: Mapping[str, Any]) -> str:
    """Return a loss, also one that is no number."""
    if word := known.get("not_finite"):
        return {"nan": "NaN", "inf": "infinite", "-inf": "minus infinite"}.get(word, "no number")
    value = known.get("loss")
    if value is None:
        return ""
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.3e}"


def speed_words(known: Mapping[str, Any]) -> str:
    parts = []
    for name, unit in (("tokens_per_second", ""), ("tokens_per_second_per_gpu", " a GPU")):
        if (value := known.get(name)) is not None:
            parts.append((f"{value:,.0f}" if value >= 100 else f"{value:.3g}") + f" tokens/s{unit}")
    if (mfu := known.get("mfu")) is not None:
        parts.append(f"MFU {mfu:.1f} %")
    return ", ".join(parts)


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int = WIDTH,
    style: Style = lambda text, word: text,
) -> Iterator[str]:
    """Yield a table, or where the terminal is too narrow for it a few lines of each row.

    + style: for the column "state"
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    fits = sum(widths) + 2 * (len(widths) - 1) <= width
    state = head.index("state") if "state" in head else 1
    for row in (head, *rows) if fits else rows:
        if fits:
            cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=True)]
            if row is not head and row[state]:
                cells[state] = cells[state].replace(row[state], style(row[state], row[state]))
            yield "  ".join(cells).rstrip()
            continue
        named = zip(head[state + 1 :], row[state + 1 :], strict=True)
        told = (f"{name} {cell}" for name, cell in named if cell not in ("", "-"))
        yield from wrapped(" ".join(row[:state]), "", "  ", width=width)
        for each in filter(None, (row[state], ", ".join(told))):
            yield from (
                style(line, row[state]) if each == row[state] else line
                for line in wrapped(each, "  ", "  ", width=width)
            )
