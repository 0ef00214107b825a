"""S4: collectives on known values, every element compared with its closed form."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import exactness
from .check import Check, Facts, Want, fail
from .device import synchronize
from .lazy import dist, torch

if TYPE_CHECKING:
    from .worker import Rank

_ONE_SIZE = 2**20
"""Bytes per rank for the collectives that are tried at one size."""


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
        longest = elements * it.world_size + exactness.REPEATS * exactness.SHIFT
        self._base = period.expand(-(-longest // self._period), self._period).reshape(-1)

    def of_rank(self, rank: int, start: int = 0, elements: int | None = None) -> torch.Tensor:
        return self._base[start:][: elements or self.elements] + rank * self._period

    def of_sum(self, start: int, elements: int | None = None) -> torch.Tensor:
        summed = self._base[start:][: elements or self.elements] * self.ranks
        return summed.add_(exactness.offset_of_sum(self._period, self.ranks))

    def of_all(self) -> list[torch.Tensor]:
        return [self.of_rank(rank) for rank in range(self.ranks)]


def all_reduce(it: Rank) -> None:
    """Record the fact "all_reduce": kind -> its runs, the last of which may be wrong."""
    sizes = exactness.sizes(it.allreduce_mib)
    with it.journal.measuring("all_reduce") as value:
        for kind in exactness.KINDS:
            value[kind] = list(_runs(it, kind, sizes))
            if value[kind][-1]["wrong"]:
                break
    if value[kind][-1]["wrong"]:
        raise WrongDataError(f"{kind} all-reduce")


def _runs(it: Rank, kind: str, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Reduce the pattern in each of `sizes` bytes, up to the first wrong result."""
    item = exactness.item_size(kind)
    values = _Values(it, kind, max(sizes) // item)
    for size in sizes:
        for repeat in range(exactness.REPEATS):
            what = f"{exactness.size_name(size)} {kind}, repeat {repeat + 1}"
            it.journal.step(f"all-reduce of {what}")
            start = repeat * exactness.SHIFT
            tensor = values.of_rank(it.rank, start, size // item)
            synchronize(it.device)
            began = time.monotonic()
            dist.all_reduce(tensor)
            synchronize(it.device)
            seconds = round(time.monotonic() - began, 6)
            wrong = difference(tensor, values.of_sum(start, size // item))
            run = {"size": size, "elements": tensor.numel(), "seconds": seconds}
            yield {**run, "wrong": f"{what}: {wrong}" if wrong else None}
            if wrong:
                return


def others(it: Rank) -> None:
    """Record the fact "collectives": those that are tried at one size, up to a wrong one."""
    values = _Values(it, "float32", _ONE_SIZE // 4)
    with it.journal.measuring("collectives") as found:
        for name, collective in _COLLECTIVES.items():
            it.journal.step(name)
            measured, wanted = collective(values)
            wrong = difference(measured, wanted)
            found[name] = {"elements": measured.numel(), "wrong": wrong}
            if wrong:
                break
    if wrong:
        raise WrongDataError(name)


def _broadcast(values: _Values) -> tuple[torch.Tensor, torch.Tensor]:
    wanted = values.of_all()
    pieces = [
        w.clone() if values.rank == s else torch.full_like(w, -1) for s, w in enumerate(wanted)
    ]
    for source, piece in enumerate(pieces):
        dist.broadcast(piece, source)
    return torch.cat(pieces), torch.cat(wanted)


def _all_gather(values: _Values) -> tuple[torch.Tensor, torch.Tensor]:
    wanted = values.of_all()
    pieces = [torch.full_like(each, -1) for each in wanted]
    dist.all_gather(pieces, wanted[values.rank].clone())
    return torch.cat(pieces), torch.cat(wanted)


def _reduce_scatter(values: _Values) -> tuple[torch.Tensor, torch.Tensor]:
    starts = [rank * values.elements for rank in range(values.ranks)]
    given = [values.of_rank(values.rank, start) for start in starts]
    mine = torch.full_like(given[0], -1)
    dist.reduce_scatter(mine, given)
    return mine, values.of_sum(starts[values.rank])


def _send_recv(values: _Values) -> tuple[torch.Tensor, torch.Tensor]:
    """Send to each other rank and receive from it. In a ring over all GPUs most pairs never talk to
    each other, and a broken path between two of them shows only here.

    Each pair has its turn, in the same order on all ranks, and the lower rank sends first.
    """
    wanted = values.of_all()
    mine = wanted[values.rank].clone()
    pieces = [torch.full_like(each, -1) for each in wanted]
    pieces[values.rank] = mine
    for low, high in itertools.combinations(range(values.ranks), 2):
        if values.rank == low:
            dist.send(mine, high)
            dist.recv(pieces[high], high)
        elif values.rank == high:
            dist.recv(pieces[low], low)
            dist.send(mine, low)
    return torch.cat(pieces), torch.cat(wanted)


_COLLECTIVES: dict[str, Callable[..., tuple[torch.Tensor, torch.Tensor]]] = {
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "send_recv": _send_recv,
}
NAMES = tuple(_COLLECTIVES)


def _all_reduced(facts: Facts, want: Want) -> str:
    sizes = exactness.sizes(want.allreduce_mib)
    for kind in exactness.KINDS:
        item = exactness.item_size(kind)
        wanted = [[size, size // item] for size in sizes for _ in range(exactness.REPEATS)]
        for rank, fact in facts.items():
            runs = fact["all_reduce"].get(kind, [])
            if runs and runs[-1]["wrong"]:
                fail(f"rank {rank}, {runs[-1]['wrong']}", rank)
            if [[run["size"], run["elements"]] for run in runs] != wanted:
                fail(f"rank {rank} did not compare every element of every size", rank)
    first, last = exactness.size_name(sizes[0]), exactness.size_name(max(sizes))
    return f"{first} to {last}, fp32 and bf16"


def _others(facts: Facts, _: Want) -> str:
    for name in NAMES:
        for rank, fact in facts.items():
            found = fact["collectives"].get(name, {"elements": 0, "wrong": None})
            if found["wrong"]:
                fail(f"{name}: rank {rank}: {found['wrong']}", rank)
            if not found["elements"]:
                fail(f"{name}: rank {rank} compared no element", rank)
    return ", ".join(NAMES)


ALL_REDUCE = Check(
    "S4.allreduce_exact", ("all_reduce",), _all_reduced, each=True, by="all_reduce", across=True
)
CHECKS = (
    ALL_REDUCE,
    Check("S4.collectives", ("collectives",), _others, each=True, by="others", across=True),
)
