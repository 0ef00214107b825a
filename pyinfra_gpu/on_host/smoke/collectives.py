"""S4: collectives on known values, every element compared with its closed form.

On rank r, element i holds ``(i mod period) + r * period``. All values and partial sums are whole
numbers no larger than the type's last consecutive one, so the order of additions does not matter,
and the sum over n ranks is ``n * (i mod period) + period * n * (n - 1) / 2``, bit for bit.
``period`` is prime, so a shifted, swapped or repeated chunk (their sizes are powers of two or
divisions of the length) never looks right, and no value of one rank is one of another's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, combinations, product

from .check import Fact, Facts, Want, fail
from .device import synchronize
from .rank import Rank, dist, torch

KINDS = {"float32": (4, 2**24), "bfloat16": (2, 2**8)}
"""Bytes of an element, and the last whole number up to which the type has all of them."""
_LONGEST = 2**20
REPEATS = 3
SHIFT = 7919
"""Elements by which the pattern moves from one repeat to the next, so a stale result is wrong."""
_ELEMENTS = 2**18
"""Per rank, for the collectives that are tried at one size."""
Pattern = Callable[[int | None, int, int], "torch.Tensor"]
"""The values of a rank (None: their sum over all) from an element on, so many."""


class WrongDataError(Exception):
    """A collective gave wrong data; what was wrong is in the journal.

    A rank ends after the first wrong one: ranks that have lost step hang or abort later, where it
    would not be seen that the data was wrong before.
    """


def period(kind: str, ranks: int) -> int:
    """Return the largest period that is exact for `ranks` ranks.

    Raises ValueError where none is; for bfloat16, with 256 as its bound, that is above 16 ranks.
    """
    bound = KINDS[kind][1]
    for number in range(min(bound, _LONGEST), 1, -1):
        exact = ranks * (number - 1) + offset_of_sum(number, ranks) <= bound
        if exact and all(number % divisor for divisor in range(2, int(number**0.5) + 1)):
            return number
    raise ValueError(f"{kind} sums over {ranks} ranks exceed {bound} and would be rounded")


def offset_of_sum(period: int, ranks: int) -> int:
    """Return the sum of all ranks' offsets."""
    return period * ranks * (ranks - 1) // 2


def sizes(largest_mib: int) -> list[int]:
    """Return the payloads in bytes, from one float to `largest_mib` MiB.

    One of them is a whole number of floats but of nothing larger: back ends cut a payload into
    chunks, and the last, odd one has its own code.
    """
    mib = 2**20
    between = (8**step * mib for step in range(1, 4))
    largest = largest_mib * mib
    return sorted({4, 4096, mib, mib + 4, largest, *(size for size in between if size < largest)})


def name_of(kind: str, size: int, repeat: int) -> str:
    """Return what one all-reduce is called."""
    shown = f"{size} B" if size % 2**20 else f"{size // 2**20} MiB"
    return f"all-reduce of {shown} {kind}, repeat {repeat + 1}"


def difference(measured: torch.Tensor, wanted: torch.Tensor) -> str | None:
    """Say in how many elements the bits of the two differ, and where first; None if in none."""
    bits = torch.int32 if measured.element_size() == 4 else torch.int16
    try:
        torch.testing.assert_close(measured.view(bits), wanted.view(bits), rtol=0, atol=0)
    except AssertionError as error:
        return " ".join(str(error).split())
    return None


def measure(it: Rank) -> None:
    """Record the fact `collectives`: what each took, and whether what came out was right."""
    wrong = None
    with it.journal.measuring("collectives") as found:
        for name, collective, right in chain(_all_reduces(it), _others(it)):
            it.journal.step(name)
            synchronize(it.device)
            began = time.monotonic()
            measured = collective()
            synchronize(it.device)
            took = round(time.monotonic() - began, 6)
            wrong = difference(measured, right())
            found[name] = {"elements": measured.numel(), "seconds": took, "wrong": wrong}
            if wrong:
                break
    if wrong:
        raise WrongDataError(name)


Try = tuple[str, Callable[[], "torch.Tensor"], Callable[[], "torch.Tensor"]]
"""The name of one try, what gives the measured tensor, and what gives the right one."""


def _pattern(it: Rank, kind: str, longest: int) -> Pattern:
    number, ranks = period(kind, it.world_size), it.world_size
    values = torch.arange(number, dtype=torch.int32, device=it.device).to(getattr(torch, kind))
    base = values.repeat(-(-longest // number))

    def pattern(rank: int | None, start: int, elements: int) -> torch.Tensor:
        part = base[start : start + elements]
        if rank is None:
            return (part * ranks).add_(offset_of_sum(number, ranks))
        return part + rank * number

    return pattern


def _all_reduces(it: Rank) -> Iterator[Try]:
    for kind, (item, _) in KINDS.items():
        pattern = _pattern(it, kind, max(sizes(it.allreduce_mib)) // item + REPEATS * SHIFT)
        for size, repeat in product(sizes(it.allreduce_mib), range(REPEATS)):
            part = repeat * SHIFT, size // item
            tensor = pattern(it.rank, *part)
            collective = partial(_all_reduce, tensor)
            yield name_of(kind, size, repeat), collective, partial(pattern, None, *part)


def _all_reduce(tensor: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(tensor)
    return tensor


def _others(it: Rank) -> Iterator[Try]:
    pattern = _pattern(it, "float32", it.world_size * _ELEMENTS)
    mine = pattern(it.rank, 0, _ELEMENTS)
    everyones = [pattern(rank, 0, _ELEMENTS) for rank in range(it.world_size)]
    for name, collective in _TO_ALL.items():
        pieces = [torch.full_like(mine, -1) for _ in everyones]
        pieces[it.rank].copy_(mine)
        yield name, partial(collective, it.rank, mine, pieces), partial(torch.cat, everyones)
    starts = [rank * _ELEMENTS for rank in range(it.world_size)]
    given = [pattern(it.rank, start, _ELEMENTS) for start in starts]
    right = partial(pattern, None, starts[it.rank], _ELEMENTS)
    yield _SCATTER, partial(_reduce_scatter, torch.full_like(mine, -1), given), right


def _broadcast(_: int, __: torch.Tensor, pieces: list[torch.Tensor]) -> torch.Tensor:
    for source, piece in enumerate(pieces):
        dist.broadcast(piece, source)
    return torch.cat(pieces)


def _all_gather(_: int, mine: torch.Tensor, pieces: list[torch.Tensor]) -> torch.Tensor:
    dist.all_gather(pieces, mine)
    return torch.cat(pieces)


def _send_recv(rank: int, mine: torch.Tensor, pieces: list[torch.Tensor]) -> torch.Tensor:
    """Send to each other rank and receive from it. In a ring over all GPUs most pairs never talk to
    each other, and a broken path between two of them shows only here.

    Each pair has its turn, in the same order on all ranks, and the lower rank sends first.
    """
    for low, high in combinations(range(len(pieces)), 2):
        if rank == low:
            dist.send(mine, high)
            dist.recv(pieces[high], high)
        elif rank == high:
            dist.recv(pieces[low], low)
            dist.send(mine, low)
    return torch.cat(pieces)


def _reduce_scatter(mine: torch.Tensor, given: list[torch.Tensor]) -> torch.Tensor:
    dist.reduce_scatter(mine, given)
    return mine


_TO_ALL = {"broadcast": _broadcast, "all_gather": _all_gather, "send_recv": _send_recv}
"""After these each rank has every rank's values."""
_SCATTER = "reduce_scatter"

# -- judged


def right(mine: Fact, want: Want, _: Facts) -> str:
    """Judge whether a rank found every collective right, in all elements."""
    tries: Mapping[str, Fact] = mine["collectives"]
    names = product(KINDS, sizes(want.allreduce_mib), range(REPEATS))
    wanted = {name_of(k, size, n): size // KINDS[k][0] for k, size, n in names}
    wanted |= {**dict.fromkeys(_TO_ALL, want.ranks * _ELEMENTS), _SCATTER: _ELEMENTS}
    for name, found in tries.items():
        if found["wrong"]:
            fail(f"{name}: {found['wrong']}")
    for name, elements in wanted.items():
        if tries.get(name, {"elements": 0})["elements"] != elements:
            fail(f"it did not compare every element of {name}")
    return f"exact from 4 B to {want.allreduce_mib} MiB, fp32 and bf16"
