"""Numbers as people say them: durations, rates, sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

BLOCKS = " ▁▂▃▄▅▆▇█"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def duration(seconds: float) -> str:
    """Return a duration in the two units that matter: "2 h 14 min", "41 s"."""
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        minutes, rest = divmod(whole, _MINUTE)
        return f"{minutes} min {rest} s" if minutes < 10 and rest else f"{minutes} min"
    if whole < _DAY:
        hours, rest = divmod(whole, _HOUR)
        return f"{hours} h {rest // _MINUTE} min" if rest >= _MINUTE else f"{hours} h"
    days, rest = divmod(whole, _DAY)
    return f"{days} d {rest // _HOUR} h" if rest >= _HOUR else f"{days} d"


def step_time(seconds: float) -> str:
    """Return how long a step takes, with three digits that mean something."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"


def rate(value: float) -> str:
    """Return a rate with thousands kept apart."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def loss(value: float) -> str:
    """Return a loss as trainers print it; a very large or small one with its exponent."""
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.3e}"


def no_number(word: str) -> str:
    """Return a loss that is not a number as people write it."""
    return {"nan": "NaN", "inf": "infinite", "-inf": "minus infinite"}.get(word, "no number")


def gib(mib: float) -> str:
    """Return an amount of memory in GiB."""
    return f"{mib / 1024:.1f}"


def resampled(values: Sequence[float], width: int) -> list[float]:
    """Return the values as `width` of them, each the mean of its part; fewer stay as they are."""
    if len(values) <= width:
        return list(values)
    ends = [round(n * len(values) / width) for n in range(width + 1)]
    parts = [values[start:end] for start, end in pairwise(ends)]
    return [sum(part) / len(part) for part in parts]


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """Return between which values a curve is drawn.

    The first steps of a training are far above all others: they may leave the picture, so that
    something is seen of the rest.
    """
    ordered = sorted(values)
    top = ordered[min(len(ordered) - 1, round(0.9 * len(ordered)))]
    return ordered[0], top


def chart(values: Sequence[float], width: int, height: int) -> list[str]:
    """Return a curve as lines of blocks, the highest first; nothing where there are no values."""
    shown = resampled(values, width)
    if not shown:
        return []
    low, high = bounds(shown)
    levels = [_level(value, low, high, height * 8) for value in shown]
    return [
        "".join(BLOCKS[max(0, min(8, level - 8 * row))] for level in levels).ljust(width)
        for row in reversed(range(height))
    ]


def sparkline(values: Sequence[float], width: int) -> str:
    """Return a curve on one line."""
    lines = chart(values, width, 1)
    return lines[0].rstrip() if lines else ""


def _level(value: float, low: float, high: float, most: int) -> int:
    """Return between 1, so that every value is seen, and `most`."""
    if high <= low:
        return max(1, most // 2)
    part = (min(value, high) - low) / (high - low)
    return 1 + round(part * (most - 1))
