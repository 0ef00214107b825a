"""Closed forms that make a reduction's result known exactly, for every element and any ranks.

On rank r, element i holds ``(i mod period) + r * period``. All values and partial sums are whole
numbers no larger than the type's last consecutive one, so the order of additions does not matter,
and the sum over n ranks is ``n * (i mod period) + period * n * (n - 1) / 2``, bit for bit.
``period`` is prime, so a shifted, swapped or repeated chunk (their sizes are powers of two or
divisions of the length) never looks right, and no value of one rank is one of another's.
"""

from __future__ import annotations

MAX_RANKS = 16
REPEATS = 3
SHIFT = 7919
"""Elements by which the pattern moves from one repeat to the next, so a stale result is wrong."""

_KINDS = {"float32": (4, 2**24), "bfloat16": (2, 2**8)}
"""Bytes of an element, and the last whole number up to which the type has all of them."""
KINDS = tuple(_KINDS)
_LONGEST = 2**20


class BoundError(ValueError):
    """No pattern stays exact for this number of ranks."""


def item_size(kind: str) -> int:
    """Return the bytes of one element of `kind`."""
    return _KINDS[kind][0]


def period(kind: str, ranks: int) -> int:
    """Return the largest period that is exact for `ranks` ranks.

    Raises BoundError where none is; for bfloat16, with 256 as its bound, that is above 16 ranks.
    """
    bound = _KINDS[kind][1]
    for number in range(min(bound, _LONGEST), 1, -1):
        exact = ranks * (number - 1) + offset_of_sum(number, ranks) <= bound
        if exact and all(number % divisor for divisor in range(2, int(number**0.5) + 1)):
            return number
    raise BoundError(f"{kind} sums over {ranks} ranks exceed {bound} and would be rounded")


def offset_of_sum(period: int, ranks: int) -> int:
    """Return the sum of all ranks' offsets."""
    return period * ranks * (ranks - 1) // 2


def sizes(largest_mib: int) -> tuple[int, ...]:
    """Return the payloads in bytes, from one float to `largest_mib` MiB.

    One of them is a whole number of floats but of nothing larger: back ends cut a payload into
    chunks, and the last, odd one has its own code.
    """
    mib = 2**20
    steps = [4, 4096, mib, mib + 4]
    size = 8 * mib
    while size < largest_mib * mib:
        steps.append(size)
        size *= 8
    if largest_mib > 1:
        steps.append(largest_mib * mib)
    return tuple(steps)


def size_name(size: int) -> str:
    """Return `size` bytes as people write it: ``4 KiB``, or ``1 MiB + 4 B``."""
    for unit, name in ((2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            rest = size % unit
            return f"{size // unit} {name}" + (f" + {rest} B" if rest else "")
    return f"{size} B"
