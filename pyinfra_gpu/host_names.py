"""Hosts' names as people read them: in natural order, many in few words, and none of them cut."""

from __future__ import annotations

import re
from collections.abc import Iterable

FEW = 4
"""Of up to so many hosts each is told by itself as it comes; more would be a wall of text."""

_NUMBER = re.compile(r"([0-9]+)")
_LAST_NUMBER = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)")
_SHORTEST_RANGE = 3  # names; two of them are written out


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return the key by which names are sorted as people count: gpu2 before gpu10."""
    return tuple((len(each) if each.isdecimal() else 0, each) for each in _NUMBER.split(name))


def brief(names: Iterable[str]) -> str:
    """Return names in natural order, neighbours as a range: "gpu1-gpu20, gpu22, ws7.lab.example".

    Both ends of a range are whole names; where these hold a dot or a hyphen themselves, "to"
    stands between them.
    """
    runs: list[list[str]] = []
    for name in sorted({*names}, key=natural):
        parts = _LAST_NUMBER.fullmatch(runs[-1][-1]) if runs else None
        # The name before, with its last number counted up.
        if parts and name == f"{parts[1]}{int(parts[2]) + 1:0{len(parts[2])}}{parts[3]}":
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(map(_range, runs))


def _range(names: list[str]) -> str:
    if len(names) < _SHORTEST_RANGE:
        return ", ".join(names)
    return f"{names[0]}{'-' if names[0].isalnum() else ' to '}{names[-1]}"
