"""S4: collectives on known values, every element compared with its closed form."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import exactness
from .check import Facts, Want, fail
from .device import synchronize
from .exactness import KINDS, REPEATS, size_name
from .lazy import dist, torch

if TYPE_CHECKING:
    from .worker import Rank

_ELEMENTS = 2**18
"""Per rank, for the collectives that are tried at one size."""
Try = tuple[str, Callable[[], Any], Callable[[], Any]]
"""The name of one try, what gives the measured tensor, and what gives the right one."""


class WrongDataError(Exception):
    """A collective gave wrong data; what was wrong is in the journal.

    A rank ends after the first wrong one: ranks that have lost step hang or abort later, where it
    would not be seen that the data was wrong before.
    """


def difference(measured: torch.Tensor, wanted: torch.Tensor) -> str | None:
    """Say in how many elements the two differ, and where first; None where every bit agrees."""
    if torch.equal(measured, wanted):
        return None
    try:
        torch.testing.assert_close(measured, wanted, rtol=0, atol=0)
    except AssertionError as error:
        return " ".join(str(error).split())
    return "they differ in bits that are equal in value"


class _Values:
    """The pattern's values as tensors, as one rank needs them; see `exactness`."""

    def __init__(self, it: Rank, kind: str, elements: int) -> None:
        self.rank, self.ranks, self.elements = it.rank, it.world_size, elements
        self._period = exactness.period(kind, it.world_size)
        period = torch.arange(self._period, dtype=torch.int32, device=it.device)
        period = period.to(getattr(torch, kind))
        longest = elements * it.world_size + REPEATS * exactness.SHIFT
        self._base = period.expand(-(-longest // self._period), self._period).reshape(-1)

    def of_rank(self, rank: int, start: int = 0, elements: int | None = None) -> torch.Tensor:
        return self._base[start:][: elements or self.elements] + rank * self._period

    def of_sum(self, start: int, elements: int | None = None) -> torch.Tensor:
        summed = self._base[start:][: elements or self.elements] * self.ranks
        return summed.add_(exactness.offset_of_sum(self._period, self.ranks))

    def of_all(self) -> list[torch.Tensor]:
        return [self.of_rank(rank) for rank in range(self.ranks)]

    def empty(self) -> list[torch.Tensor]:
        return [torch.full_like(each, -1) for each in self.of_all()]


def all_reduce(it: Rank) -> None:
    """Record the fact "all_reduce": name of a try -> what was compared, up to a wrong one."""
    _record(it, "all_reduce", _all_reduces(it))


def others(it: Rank) -> None:
    """Record the fact "collectives", those that are tried at one size, in the same way."""
    _record(it, "collectives", _others(_Values(it, "float32", _ELEMENTS)))


def _record(it: Rank, fact: str, tries: Iterator[Try]) -> None:
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
    sizes = exactness.sizes(it.allreduce_mib)
    for kind in KINDS:
        item = exactness.item_size(kind)
        values = _Values(it, kind, max(sizes) // item)
        for size, repeat in itertools.product(sizes, range(REPEATS)):
            start, elements = repeat * exactness.SHIFT, size // item
            tensor = values.of_rank(it.rank, start, elements)

            def reduced(tensor: Any = tensor) -> Any:
                dist.all_reduce(tensor)
                return tensor

            def right(values: Any = values, start: int = start, elements: int = elements) -> Any:
                return values.of_sum(start, elements)

            yield name_of(kind, size, repeat), reduced, right


def _others(values: _Values) -> Iterator[Try]:
    starts = [rank * values.elements for rank in range(values.ranks)]

    def everyones() -> Any:
        return torch.cat(values.of_all())

    yield "broadcast", lambda: _broadcast(values), everyones
    yield "all_gather", lambda: _all_gather(values), everyones
    yield (
        "reduce_scatter",
        lambda: _reduce_scatter(values, starts),
        lambda: values.of_sum(starts[values.rank]),
    )
    yield "send_recv", lambda: _send_recv(values), everyones


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


def _reduce_scatter(values: _Values, starts: list[int]) -> torch.Tensor:
    given = [values.of_rank(values.rank, start) for start in starts]
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


# -- judged


def name_of(kind: str, size: int, repeat: int) -> str:
    """Return what one all-reduce is called."""
    return f"all-reduce of {size_name(size)} {kind}, repeat {repeat + 1}"


def _judge(facts: Facts, fact: str, wanted: Mapping[str, int]) -> None:
    """Hold that each rank found every try right, in that many elements."""
    for rank, each in facts.items():
        for name, found in each[fact].items():
            if found["wrong"]:
                fail(f"rank {rank}, {name}: {found['wrong']}", rank)
        for name, elements in wanted.items():
            if each[fact].get(name, {"elements": 0})["elements"] != elements:
                fail(f"rank {rank} did not compare every element of {name}", rank)


def all_reduced(facts: Facts, want: Want) -> str:
    """Judge the all-reduces: all of each size and type are right on all ranks."""
    sizes = exactness.sizes(want.allreduce_mib)
    tries = itertools.product(KINDS, sizes, range(REPEATS))
    wanted = {name_of(k, size, n): size // exactness.item_size(k) for k, size, n in tries}
    _judge(facts, "all_reduce", wanted)
    return f"{size_name(sizes[0])} to {size_name(max(sizes))}, fp32 and bf16"


def others_right(facts: Facts, want: Want) -> str:
    """Judge the other collectives."""
    wanted = dict.fromkeys(("broadcast", "all_gather", "send_recv"), want.ranks * _ELEMENTS)
    _judge(facts, "collectives", {**wanted, "reduce_scatter": _ELEMENTS})
    return ", ".join(facts[min(facts)]["collectives"])
