"""Closed forms that make a reduction's result known exactly, for every element and any ranks.

On rank r, element i holds ``(i mod period) + (r + first) * step``. All values and partial sums are
whole numbers no larger than the type's last consecutive one, so the order of additions does not
matter and the sum over n ranks is ``n * (i mod period) + step * sum(r + first)``, bit for bit.
``period`` is prime, so a shifted, swapped or repeated chunk (their sizes are powers of two or
divisions of the length) never looks right; ``step`` is above it, so ranks cannot be confused.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_RANKS = 16
REPEATS = 3
SHIFT = 7919
"""Elements by which the pattern moves from one repeat to the next, so a stale result is wrong."""

_KINDS = {
    # name: (bytes per element, last consecutive whole number, log2 of the largest step, first)
    "float32": (4, 2**24, 20, 1),
    "bfloat16": (2, 2**8, 6, 0),
}
KINDS = tuple(_KINDS)


class BoundError(ValueError):
    """No pattern stays exact for this number of ranks."""


@dataclass(frozen=True)
class Pattern:
    """The values to reduce over `ranks` ranks in one element type."""

    kind: str
    ranks: int
    period: int
    step: int
    first: int

    def offset(self, rank: int) -> int:
        """Return what rank `rank` adds to ``i mod period``."""
        return (rank + self.first) * self.step

    @property
    def offsets(self) -> int:
        """Return the sum of all ranks' offsets."""
        return sum(self.offset(rank) for rank in range(self.ranks))

    @property
    def largest_sum(self) -> int:
        """Return the largest value that occurs, which must be exact in the type."""
        return self.ranks * (self.period - 1) + self.offsets


def item_size(kind: str) -> int:
    """Return the bytes of one element of `kind`."""
    return _KINDS[kind][0]


def pattern(kind: str, ranks: int) -> Pattern:
    """Return the pattern with the largest period that is exact for `ranks` ranks.

    Raises BoundError where none is; for bfloat16, with 256 as its bound, that is above 16 ranks.
    """
    _, bound, bits, first = _KINDS[kind]
    for shift in range(bits):
        step = 2 ** (bits - shift)
        candidate = Pattern(kind, ranks, _largest_prime(step), step, first)
        if candidate.largest_sum <= bound:
            return candidate
    raise BoundError(f"{kind} sums over {ranks} ranks exceed {bound} and would be rounded")


def _largest_prime(limit: int) -> int:
    return next(
        number
        for number in range(limit, 1, -1)
        if all(number % divisor for divisor in range(2, int(number**0.5) + 1))
    )


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
