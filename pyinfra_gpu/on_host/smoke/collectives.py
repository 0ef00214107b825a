"""S4: collectives on known values, every element compared with its closed form.

On rank r, element i holds ``(i mod period) + r * period``. All values and partial sums are whole
numbers no larger than the type's last consecutive one, so the order of additions does not matter,
and the sum over n ranks is ``n * (i mod period) + period * n * (n - 1) / 2``, bit for bit.
``period`` is prime, so a shifted, swapped or repeated chunk (their sizes are powers of two or
divisions of the length) never looks right, and no value of one rank is one of another's.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .check import Fact, Facts, Want, fail
from .device import synchronize
from .lazy import dist, torch

if TYPE_CHECKING:
    from .worker import Rank

KINDS = {"float32": (4, 2**24), "bfloat16": (2, 2**8)}
"""Bytes of an element, and the last whole number up to which the type has all of them."""
_LONGEST = 2**20
REPEATS = 3
SHIFT = 7919
"""Elements by which the pattern moves from one repeat to the next, so a stale result is wrong."""
_ELEMENTS = 2**18
"""Per rank, for the collectives that are tried at one size."""
Try = tuple[str, Callable[[], Any], Callable[[], Any]]
"""The name of one try, what gives the measured tensor, and what gives the right one."""


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


def difference(measured: torch.Tensor, wanted: torch.Tensor) -> str | None:
    """Say in how many elements the two differ, and where first; None where every bit agrees."""
    if torch.equal(measured.view(torch.uint8), wanted.view(torch.uint8)):
        return None
    try:
        torch.testing.assert_close(measured, wanted, rtol=0, atol=0)
    except AssertionError as error:
        return " ".join(str(error).split())
    return "they differ in bits that are equal in value"


class _Values:
    """The pattern's values as tensors, as one rank needs them."""

    def __init__(self, it: Rank, kind: str, elements: int) -> None:
        self.rank, self.ranks, self.elements = it.rank, it.world_size, elements
        self._period = period(kind, it.world_size)
        values = torch.arange(self._period, dtype=torch.int32, device=it.device)
        values = values.to(getattr(torch, kind))
        longest = elements * it.world_size + REPEATS * SHIFT
        self._base = values.expand(-(-longest // self._period), self._period).reshape(-1)

    def of_rank(self, rank: int, start: int = 0, elements: int | None = None) -> torch.Tensor:
        return self._base[start:][: elements or self.elements] + rank * self._period

    def of_sum(self, start: int, elements: int | None = None) -> torch.Tensor:
        summed = self._base[start:][: elements or self.elements] * self.ranks
        return summed.add_(offset_of_sum(self._period, self.ranks))

    def of_all(self) -> torch.Tensor:
        return torch.cat([self.of_rank(rank) for rank in range(self.ranks)])

    def empty(self) -> list[torch.Tensor]:
        return [torch.full_like(self.of_rank(rank), -1) for rank in range(self.ranks)]


def all_reduce(it: Rank) -> None:
    """Record the fact "all_reduce": name of a try -> what was compared, up to a wrong one."""
    _record(it, "all_reduce", _all_reduces(it))


def others(it: Rank) -> None:
    """Record the fact "collectives", those that are tried at one size, in the same way."""
    values = _Values(it, "float32", _ELEMENTS)
    rights = dict.fromkeys(_OTHERS, values.of_all)
    rights["reduce_scatter"] = lambda: values.of_sum(it.rank * _ELEMENTS)
    tries = ((name, functools.partial(how, values), rights[name]) for name, how in _OTHERS.items())
    _record(it, "collectives", tries)


def _record(it: Rank, fact: str, tries: Iterable[Try]) -> None:
    wrong = None
    with it.journal.measuring(fact) as found:
        for name, collective, right in tries:
            it.journal.step(name)
            synchronize(it.device)
            began = time.monotonic()
            measured = collective()
            synchronize(it.device)
            seconds = round(time.monotonic() - began, 6)
            wrong = difference(measured, right())
            found[name] = {"elements": measured.numel(), "seconds": seconds, "wrong": wrong}
            if wrong:
                break
    if wrong:
        raise WrongDataError(name)


def _all_reduces(it: Rank) -> Iterator[Try]:
    for kind, (item, _) in KINDS.items():
        values = _Values(it, kind, max(sizes(it.allreduce_mib)) // item)
        for size, repeat in itertools.product(sizes(it.allreduce_mib), range(REPEATS)):
            start, elements = repeat * SHIFT, size // item
            tensor = values.of_rank(it.rank, start, elements)
            right = functools.partial(values.of_sum, start, elements)
            yield name_of(kind, size, repeat), functools.partial(_all_reduce, tensor), right


def _all_reduce(tensor: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(tensor)
    return tensor


def _broadcast(values: _Values) -> torch.Tensor:
    pieces = values.empty()
    pieces[values.rank] = values.of_rank(values.rank)
    for source, piece in enumerate(pieces):
        dist.broadcast(piece, source)
    return torch.cat(pieces)


def _all_gather(values: _Values) -> torch.Tensor:
    pieces = values.empty()
    dist.all_gather(pieces, values.of_rank(values.rank))
    return torch.cat(pieces)


def _reduce_scatter(values: _Values) -> torch.Tensor:
    given = [values.of_rank(values.rank, to * _ELEMENTS) for to in range(values.ranks)]
    mine = torch.full_like(given[0], -1)
    dist.reduce_scatter(mine, given)
    return mine


def _send_recv(values: _Values) -> torch.Tensor:
    """Send to each other rank and receive from it. In a ring over all GPUs most pairs never talk to
    each other, and a broken path between two of them shows only here.

    Each pair has its turn, in the same order on all ranks, and the lower rank sends first.
    """
    mine, pieces = values.of_rank(values.rank), values.empty()
    pieces[values.rank] = mine
    for low, high in itertools.combinations(range(values.ranks), 2):
        if values.rank == low:
            dist.send(mine, high)
            dist.recv(pieces[high], high)
        elif values.rank == high:
            dist.recv(pieces[low], low)
            dist.send(mine, low)
    return torch.cat(pieces)


_OTHERS: Mapping[str, Callable[[_Values], Any]] = {
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "send_recv": _send_recv,
}

# -- judged


def name_of(kind: str, size: int, repeat: int) -> str:
    """Return what one all-reduce is called."""
    shown = f"{size} B" if size % 2**20 else f"{size // 2**20} MiB"
    return f"all-reduce of {shown} {kind}, repeat {repeat + 1}"


def _judge(tries: Mapping[str, Any], wanted: Mapping[str, int]) -> None:
    """Hold that a rank found every try right, in that many elements."""
    for name, found in tries.items():
        if found["wrong"]:
            fail(f"{name}: {found['wrong']}")
    for name, elements in wanted.items():
        if tries.get(name, {"elements": 0})["elements"] != elements:
            fail(f"it did not compare every element of {name}")


def all_reduced(mine: Fact, want: Want, _: Facts) -> str:
    """Judge the all-reduces: all of each size and type are right on all ranks."""
    tries = itertools.product(KINDS, sizes(want.allreduce_mib), range(REPEATS))
    _judge(mine["all_reduce"], {name_of(k, s, n): s // KINDS[k][0] for k, s, n in tries})
    return f"4 B to {want.allreduce_mib} MiB, fp32 and bf16"


def others_right(mine: Fact, want: Want, _: Facts) -> str:
    """Judge the other collectives."""
    wanted = dict.fromkeys(_OTHERS, want.ranks * _ELEMENTS)
    _judge(mine["collectives"], {**wanted, "reduce_scatter": _ELEMENTS})
    return ", ".join(_OTHERS)
