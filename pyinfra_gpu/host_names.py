"""Hosts' names as people read them: in natural order, many in few words, and none of them cut.

And what keeps a name from being one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

FEW = 4
"""Of up to so many hosts each is told by itself as it comes; more would be a wall of text."""

_NUMBER = re.compile(r"(\d+)")
_PLAIN = re.compile(r"[^\W_]+")
_SHORTEST_RANGE = 3  # names; two of them are written out
_LONGEST_NUMBER = 18  # digits: more are an address or a digest, which nobody counts up


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return the key by which names are sorted as people count: gpu2 before gpu10."""
    parts = _NUMBER.split(name)
    return tuple((1, int(each), each) if _counts(each) else (0, 0, each) for each in parts)


def brief(names: Iterable[str]) -> str:
    """Return names in natural order, neighbours as a range: "gpu1-gpu20, gpu22, ws7.lab.example".

    Both ends of a range are whole names; where these hold a dot or a hyphen themselves, "to"
    stands between them.
    """
    return ", ".join(map(_range, _runs(sorted(set(names), key=natural))))


def _runs(names: Sequence[str]) -> list[list[str]]:
    """Split sorted names where one is not the next number after the one before it."""
    runs: list[list[str]] = [[name] for name in names[:1]]
    place: int | None = None  # of the number that counts up in the last run
    for before, name in pairwise(names):
        found = _counted_up(before, name)
        if found is not None and place in (None, found):
            runs[-1].append(name)
            place = found
        else:
            runs.append([name])
            place = None
    return runs


def _counted_up(name: str, following: str) -> int | None:
    """Return the place of the one number by which a name follows another; None if it does not."""
    parts, others = _NUMBER.split(name), _NUMBER.split(following)
    if len(parts) != len(others):
        return None
    places = [place for place, part in enumerate(parts) if part != others[place]]
    if len(places) != 1 or not _counts(parts[places[0]]):
        return None
    number = parts[places[0]]
    expected = str(int(number) + 1).zfill(len(number))
    return places[0] if others[places[0]] == expected else None


def _counts(part: str) -> bool:
    return part.isascii() and part.isdecimal() and len(part) <= _LONGEST_NUMBER


def _range(names: Sequence[str]) -> str:
    if len(names) < _SHORTEST_RANGE:
        return ", ".join(names)
    between = "-" if _PLAIN.fullmatch(names[0]) else " to "
    return f"{names[0]}{between}{names[-1]}"


def unfit(name: str) -> str | None:
    """Return what keeps a name from being read and typed as one, a clause; None if nothing does."""
    if not name.isprintable():
        return "holds a character that cannot be printed"
    if any(each.isspace() for each in name):
        return "holds a blank"
    if name.startswith("-"):
        return "begins with a hyphen, as options do"
    return None


def unresolvable(address: object) -> str | None:
    """Return why nobody can look an address up, a clause; None if it can be tried."""
    if not isinstance(address, str):
        return "is no text"
    if fault := unfit(address):
        return fault
    try:
        address.encode("idna")  # as Python does before it asks, and raises what is no OSError
    except UnicodeError:
        return "is no name that can be looked up: between two dots stand 1 to 63 characters"
    return None
