"""S4: collectives on known values, every element compared with its closed form."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import exactness
from .check import Check, Facts, Want, fail, skip
from .device import synchronize

if TYPE_CHECKING:
    import torch

    from .worker import Rank

_ONE_SIZE = 2**20
"""Bytes per rank for the collectives that are tried at one size."""
_PAIR_MIB = 64


class WrongDataError(Exception):
    """A collective gave wrong data; what was wrong is in the journal.

    A rank ends after the first wrong one: ranks that have lost step hang or abort later, where it
    would not be seen that the data was wrong before.
    """


def difference(measured: torch.Tensor, wanted: torch.Tensor) -> str | None:
    """Say in how many elements the two differ, and where first; None where every bit agrees."""
    import torch

    if torch.equal(measured, wanted):
        return None
    try:
        torch.testing.assert_close(measured, wanted, rtol=0, atol=0)
    except AssertionError as error:
        return " ".join(str(error).split())
    return "they differ in bits that are equal in value"


class _Values:
    """The pattern's values as tensors."""

    def __init__(self, kind: str, ranks: int, elements: int, device: torch.device) -> None:
        import torch

        self._pattern = exactness.pattern(kind, ranks)
        period = torch.arange(self._pattern.period, dtype=torch.int32, device=device)
        period = period.to(getattr(torch, kind))
        times = -(-(elements + exactness.REPEATS * exactness.SHIFT) // self._pattern.period)
        self._base = period.expand(times, self._pattern.period).reshape(-1)

    def of_rank(self, rank: int, start: int, elements: int) -> torch.Tensor:
        return self._base[start : start + elements] + self._pattern.offset(rank)

    def of_sum(self, start: int, elements: int) -> torch.Tensor:
        summed = self._base[start : start + elements] * self._pattern.ranks
        return summed.add_(self._pattern.offsets)


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
    import torch.distributed as dist

    item = exactness.item_size(kind)
    values = _Values(kind, it.world_size, max(sizes) // item, it.device)
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
    elements = _ONE_SIZE // 4
    values = _Values("float32", it.world_size, it.world_size * elements, it.device)
    with it.journal.measuring("collectives") as found:
        for name, collective in _COLLECTIVES.items():
            it.journal.step(name)
            measured, wanted = collective(values, it.rank, it.world_size, elements)
            wrong = difference(measured, wanted)
            found[name] = {"elements": measured.numel(), "wrong": wrong}
            if wrong:
                break
    if wrong:
        raise WrongDataError(name)


def _broadcast(
    values: _Values, rank: int, ranks: int, elements: int
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch
    import torch.distributed as dist

    wanted = [values.of_rank(source, 0, elements) for source in range(ranks)]
    pieces = [w.clone() if rank == s else torch.full_like(w, -1) for s, w in enumerate(wanted)]
    for source, piece in enumerate(pieces):
        dist.broadcast(piece, source)
    return torch.cat(pieces), torch.cat(wanted)


def _all_gather(
    values: _Values, rank: int, ranks: int, elements: int
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch
    import torch.distributed as dist

    wanted = [values.of_rank(source, 0, elements) for source in range(ranks)]
    pieces = [torch.full_like(wanted[0], -1) for _ in range(ranks)]
    dist.all_gather(pieces, wanted[rank].clone())
    return torch.cat(pieces), torch.cat(wanted)


def _reduce_scatter(
    values: _Values, rank: int, ranks: int, elements: int
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch
    import torch.distributed as dist

    given = [values.of_rank(rank, target * elements, elements) for target in range(ranks)]
    mine = torch.full_like(given[0], -1)
    dist.reduce_scatter(mine, given)
    return mine, values.of_sum(rank * elements, elements)


def _send_recv(
    values: _Values, rank: int, ranks: int, elements: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pass values once around the ring; rank 0 sends first, so that nobody waits for himself."""
    import torch
    import torch.distributed as dist

    source, target = (rank - 1) % ranks, (rank + 1) % ranks
    mine = values.of_rank(rank, 0, elements)
    received = torch.full_like(mine, -1)
    if ranks == 1:
        received.copy_(mine)
    elif rank == 0:
        dist.send(mine, target)
        dist.recv(received, source)
    else:
        dist.recv(received, source)
        dist.send(mine, target)
    return received, values.of_rank(source, 0, elements)


_COLLECTIVES: dict[str, Callable[..., tuple[torch.Tensor, torch.Tensor]]] = {
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "send_recv": _send_recv,
}
NAMES = tuple(_COLLECTIVES)


def pairs(it: Rank) -> None:
    """Record the fact `pairs`: what this rank saw in an all-reduce of each pair it belongs to.

    In a ring over all GPUs most pairs never talk to each other; a broken path between two of them
    shows only in a group of these two. Two ranks are the only pair and were tested as such.
    """
    import torch.distributed as dist

    elements = _PAIR_MIB * 2**20 // 4
    with it.journal.measuring("pairs") as value:
        value["results"] = []
        values = _Values("float32", 2, elements, it.device) if it.world_size > 2 else None
        for first, second in all_pairs(it.world_size) if values else []:
            # Every rank must take part in making every group, in the same order.
            group = dist.new_group([first, second])
            if values and it.rank in (first, second):
                it.journal.step(f"all-reduce of ranks {first} and {second}")
                tensor = values.of_rank(int(it.rank == second), 0, elements)
                dist.all_reduce(tensor, group=group)
                wrong = difference(tensor, values.of_sum(0, elements))
                value["results"].append({"ranks": [first, second], "wrong": wrong})
                dist.destroy_process_group(group)
    if any(result["wrong"] for result in value["results"]):
        raise WrongDataError("all-reduce of a pair")


def all_pairs(ranks: int) -> list[tuple[int, int]]:
    """Return every two of `ranks`."""
    return [(first, second) for first in range(ranks) for second in range(first + 1, ranks)]


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


def _pairs(facts: Facts, want: Want) -> str:
    if want.ranks < 3:
        skip("there are no pairs beside what the checks above have tried")
    seen = set()
    for rank, fact in facts.items():
        for result in fact["pairs"]["results"]:
            first, second = result["ranks"]
            if result["wrong"]:
                fail(f"between GPUs {first} and {second}: rank {rank}: {result['wrong']}", rank)
            seen.add((first, second, rank))
    for pair in all_pairs(want.ranks) if len(facts) == want.ranks else []:
        if any((*pair, rank) not in seen for rank in pair):
            fail(f"the pair of GPUs {pair[0]} and {pair[1]} was not compared")
    return f"all {len(all_pairs(want.ranks))} pairs"


ALL_REDUCE = Check(
    "S4.allreduce_exact", ("all_reduce",), _all_reduced, each=True, by="all_reduce", across=True
)
CHECKS = (
    ALL_REDUCE,
    Check("S4.collectives", ("collectives",), _others, each=True, by="others", across=True),
)
ON_GPUS = (Check("S4.pairs_exact", ("pairs",), _pairs, each=True, by="pairs"),)
