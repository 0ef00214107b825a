"""A plot of seconds over numbers of hosts, both logarithmic, as SVG without any library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

Line = Sequence[tuple[float, float]]

WIDTH, HEIGHT, LEFT, TOP, PANEL, GAP = 900, 420, 60, 40, 300, 60
COLOURS = ("#999999", "#444444", "#0b6e4f", "#21b573", "#3366cc", "#cc3333", "#ee8866", "#8844aa")
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" {more}>{escape(words)}</text>'


def svg(panels: Mapping[str, Mapping[str, Line]]) -> str:
    """Return the plot: beside one another a panel for each name, in it a line for each name."""
    points = [each for lines in panels.values() for line in lines.values() for each in line]
    hosts = sorted({x for x, _ in points})
    ticks = [each for each in TICKS if min(y for _, y in points) / 2 < each]
    ticks = [each for each in ticks if each < 2 * max(y for _, y in points)]
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    bottom = HEIGHT - 60

    def across(panel: int, x: float) -> float:
        span = math.log(max(hosts) / min(hosts)) or 1
        return LEFT + panel * (PANEL + GAP) + PANEL * math.log(x / min(hosts)) / span

    def up(y: float) -> float:
        span = math.log(ticks[-1] / ticks[0])
        return bottom - (bottom - TOP) * math.log(y / ticks[0]) / span

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for panel, (title, lines) in enumerate(panels.items()):
        left, right = across(panel, min(hosts)), across(panel, max(hosts))
        parts.append(_text(left, TOP - 16, title, 'font-weight="bold"'))
        for tick in ticks:
            parts.append(f'<path d="M{left:.0f} {up(tick):.1f}H{right:.0f}" stroke="#dddddd"/>')
            parts.append(_text(left - 6, up(tick) + 4, f"{tick:g}", 'text-anchor="end"'))
        middle = 'text-anchor="middle"'
        parts += [_text(across(panel, x), bottom + 16, f"{x:g}", middle) for x in hosts]
        parts.append(_text((left + right) / 2, bottom + 36, "hosts", middle))
        for name, line in lines.items():
            path = "L".join(f"{across(panel, x):.1f} {up(y):.1f}" for x, y in line)
            colour = COLOURS[names.index(name) % len(COLOURS)]
            parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for number, name in enumerate(names):
        y = TOP + 20 * number
        x = LEFT + len(panels) * (PANEL + GAP) - GAP + 20
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<path d="M{x} {y}h18" stroke="{colour}" stroke-width="3"/>')
        parts.append(_text(x + 24, y + 4, name))
    return "\n".join([*parts, _text(8, TOP - 16, "s"), "</svg>"]) + "\n"
