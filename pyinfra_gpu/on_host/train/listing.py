"""What is known of a run, in words and as a table: on its host, and from the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Style = Callable[[str, str], str]
"""Colours a text after what a word says."""


def duration(seconds: float) -> str:
    """Return a time in its two largest units, such as "1 h 39 min"."""
    whole = max(0, round(seconds))
    for size, unit, smaller, below in (
        (86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"),
    ):  # fmt: skip
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def step_words(known: Mapping[str, Any]) -> str:
    step, steps = known.get("step"), known.get("steps")
    return "" if step is None else f"{step:,}" + (f"/{steps:,}" if steps else "")


def loss_words(known: Mapping[str, Any]) -> str:
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
    width: int,
    style: Style = lambda text, word: text,
) -> Iterator[str]:
    """Yield a table's lines; one row after the other where the terminal is too narrow for it.

    + style: for the column "state"
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    fits = sum(widths) + 2 * (len(widths) - 1) <= width
    state = head.index("state") if "state" in head else None
    for row in (head, *rows) if fits else rows:
        cells = [cell.ljust(size if fits else 0) for cell, size in zip(row, widths, strict=True)]
        if state is not None and row is not head:
            cells[state] = style(cells[state], row[state])
        yield "  ".join(cells if fits else filter(None, cells)).rstrip()
