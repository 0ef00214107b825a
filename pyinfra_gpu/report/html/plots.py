"""Small plots of the smoke test's figures, as SVG that needs nothing from outside.

Colours and fonts come from the page's style sheet by class, so that they follow light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pyinfra_gpu.facts.verdict import finite
from pyinfra_gpu.facts.verdict_parts import Metrics
from pyinfra_gpu.on_host.train.watch import bounds
from pyinfra_gpu.on_host.train.watch import loss_words as told_loss

_WIDTH, _HEIGHT = 340, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 12, 22, 28
_KINDS = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class _Scale:
    """Maps a range of values, by their logarithm or as they are, to a range of pixels."""

    low: float
    high: float
    first: float
    last: float

    def __call__(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.first + part * (self.last - self.first), 1)


def bandwidth(metrics: Metrics) -> Markup | None:
    """Return the all-reduce's rate by size, one line for each kind of number; None without data.

    Both axes are logarithmic: sizes go from bytes to megabytes, and so do the rates.
    """
    series = {kind: _points(metrics, kind) for kind in _KINDS}
    series = {kind: points for kind, points in series.items() if len(points) > 1}
    if not series:
        return None
    sizes = [math.log10(size) for points in series.values() for size, _ in points]
    rates = [math.log10(rate) for points in series.values() for _, rate in points]
    x = _Scale(min(sizes), max(sizes), _LEFT, _WIDTH - _RIGHT)
    y = _Scale(math.floor(min(rates)), math.ceil(max(rates)), _HEIGHT - _BOTTOM, _TOP)
    parts = [_grid_line(y(power), _rate(10.0**power)) for power in _powers(y)]
    parts += [_below(x(math.log10(size)), _bytes(size)) for size in _ticks(series)]
    best = []
    for number, (kind, points) in enumerate(series.items()):
        places = [(x(math.log10(size)), y(math.log10(rate))) for size, rate in points]
        parts.append(_line(places, f"s{number}"))
        parts.append(_legend(number, kind))
        size, rate = points[-1]
        best.append(f"{kind} {_rate(rate)} at {_bytes(size)}")
    return _svg("All-reduce rate by size: " + ", ".join(best), parts)


def loss(metrics: Metrics) -> Markup | None:
    """Return the loss before and after one training step, beside what its gradient predicts."""
    before, after = finite(metrics.loss0), finite(metrics.loss1)
    drop = finite(metrics.loss_drop_predicted)
    if before is None or after is None or drop is None:
        return None
    predicted = before - drop
    low, high = min(before, after, predicted), max(before, after, predicted)
    y = _Scale(low, high, _HEIGHT - _BOTTOM - 14, _TOP + 18)
    start, end = 40, _WIDTH - _RIGHT - 70
    parts = [
        _line([(start, y(before)), (end, y(predicted))], "guess"),
        _line([(start, y(before)), (end, y(after))], "s0"),
        _text(start, y(before) - 9, f"{before:.4f}", "middle"),
        _text(end + 8, y(after) + 4, f"{after:.4f}", "start"),
        _below(start, "before"),
        _below(end, "after one step"),
        _text(14, 12, "dashed: what the gradient predicts", "start"),
    ]
    words = f"Loss {before:.4f} before and {after:.4f} after one step; predicted {predicted:.4f}"
    return _svg(words, parts)


def curve(losses: Sequence[float]) -> Markup | None:
    """Return how a training's loss went, from its first step to its last; None of less than two.

    The first steps are far above all others: what is above nine tenths of the values is left out.
    """
    if len(losses) < 2:
        return None
    low, high = bounds(losses)
    x = _Scale(0, len(losses) - 1, _LEFT, _WIDTH - _RIGHT)
    y = _Scale(low, high, _HEIGHT - _BOTTOM, _TOP)
    places = [(x(number), y(value)) for number, value in enumerate(losses) if value <= high]
    parts = [_grid_line(y(each), told_loss(each)) for each in dict.fromkeys((low, high))]
    words = f"Loss from {told_loss(losses[0])} to {told_loss(losses[-1])}"
    return _svg(words, [*parts, _polyline(places, "s0")])


def _points(metrics: Metrics, kind: str) -> list[tuple[float, float]]:
    """Return (bytes, MB/s) in the order of the sizes; a rate of nothing has no logarithm."""
    return sorted(
        (each.bytes, each.mb_per_s)
        for each in metrics.allreduce
        if each.kind == kind and each.mb_per_s > 0
    )


def _powers(scale: _Scale) -> list[int]:
    low, high = int(scale.low), int(scale.high)
    return list(range(low, high + 1, max(1, (high - low + 3) // 4)))


def _ticks(series: Mapping[str, Sequence[tuple[float, float]]]) -> list[float]:
    """Return the first, the middle and the last size: more labels would run into one another."""
    sizes = sorted({size for points in series.values() for size, _ in points})
    centre = math.sqrt(sizes[0] * sizes[-1])
    middle = min(sizes, key=lambda size: abs(math.log(size / centre)))
    return sorted({sizes[0], middle, sizes[-1]})


def _bytes(size: float) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:.3g} B"


def _rate(mb_per_s: float) -> str:
    if mb_per_s >= 1000:
        return f"{mb_per_s / 1000:.3g} GB/s"
    return f"{mb_per_s:.3g} MB/s" if mb_per_s >= 1 else f"{mb_per_s * 1000:.3g} kB/s"


def _line(places: Sequence[tuple[float, float]], name: str) -> Markup:
    """Return a line with a dot at each place; a guess has none."""
    dots = Markup("").join(
        Markup('<circle class="dot {}" cx="{}" cy="{}" r="2.5"/>').format(name, x, y)
        for x, y in (places if name != "guess" else ())
    )
    return _polyline(places, name) + dots


def _polyline(places: Sequence[tuple[float, float]], name: str) -> Markup:
    points = " ".join(f"{x},{y}" for x, y in places)
    return Markup('<polyline class="line {}" points="{}"/>').format(name, points)


def _grid_line(y: float, label: str) -> Markup:
    line = Markup('<line class="grid" x1="{}" x2="{}" y1="{y}" y2="{y}"/>')
    return line.format(_LEFT, _WIDTH - _RIGHT, y=y) + _text(_LEFT - 5, y + 3.5, label, "end")


def _below(x: float, label: str) -> Markup:
    anchor = "end" if x > _WIDTH - _RIGHT - 20 else "middle"
    return _text(x, _HEIGHT - 10, label, anchor)


def _legend(number: int, kind: str) -> Markup:
    x = _LEFT + 4 + 96 * number
    swatch = Markup('<line class="line s{}" x1="{}" x2="{}" y1="8" y2="8"/>')
    return swatch.format(number, x, x + 16) + _text(x + 21, 12, kind, "start")


def _text(x: float, y: float, label: str, anchor: str) -> Markup:
    text = Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>')
    return text.format(round(x, 1), round(y, 1), anchor, label)


def _svg(words: str, parts: Sequence[Markup]) -> Markup:
    drawing = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
    return drawing.format(_WIDTH, _HEIGHT, words, Markup("").join(parts))
