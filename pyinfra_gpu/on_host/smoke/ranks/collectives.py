"""Collectives on known values, every element compared with its closed form."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .. import exactness
from .rank import Rank

_ONE_SIZE = 2**20
"""Bytes per rank for the collectives that are tried at one size."""


class WrongDataError(Exception):
    """A collective gave wrong data; what was wrong is in the journal."""


def measure(it: Rank) -> None:
    """Record how many elements were wrong, and the first, for each collective.

    Raises WrongDataError after the first wrong one: ranks that have lost step hang or abort later,
    where it would not be seen that the data was wrong before.
    """
    rank = it.rank
    for kind in exactness.KINDS:
        sizes = exactness.sizes(it.options.allreduce_mib)
        with it.journal.measuring(f"allreduce_{kind}") as value:
            value["runs"] = all_reduce_sizes(it, kind, sizes)
        if value["runs"][-1]["wrong"]:
            raise WrongDataError(f"{kind} all-reduce")
    pattern = exactness.pattern("float32", it.world_size)
    values = _Values(pattern, it.world_size * _ONE_SIZE // 4, it.device)
    for name, collective in _ONE_SIZE_COLLECTIVES.items():
        with it.journal.measuring(name) as value:
            value.update(_tried(collective, values, rank))
        if value["wrong"]:
            raise WrongDataError(name)


class _Values:
    """The pattern's values as tensors."""

    def __init__(
        self, pattern: exactness.Pattern, elements: int, device: torch.device | str
    ) -> None:
        self.pattern = pattern
        kind = getattr(torch, pattern.kind)
        period = torch.arange(pattern.period, dtype=torch.int32, device=device).to(kind)
        times = -(-(elements + exactness.REPEATS * exactness.SHIFT) // pattern.period)
        self._base = period.expand(times, pattern.period).reshape(-1)

    def of_rank(self, rank: int, start: int, elements: int) -> torch.Tensor:
        return self._base[start : start + elements] + self.pattern.offset(rank)

    def of_sum(self, start: int, elements: int) -> torch.Tensor:
        summed = self._base[start : start + elements] * self.pattern.ranks
        return summed.add_(self.pattern.offsets)


def all_reduce_sizes(it: Rank, kind: str, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Reduce the pattern in each of `sizes` bytes; return what was found, up to the first wrong."""
    pattern = exactness.pattern(kind, it.world_size)
    item = exactness.item_size(kind)
    values = _Values(pattern, max(sizes) // item, it.device)
    runs = []
    for size in sizes:
        for repeat in range(exactness.REPEATS):
            where = f"{exactness.size_name(size)} {kind}, repeat {repeat + 1}"
            it.journal.step(f"all-reduce of {where}")
            runs.append({"size": size, **_all_reduce(values, it.rank, size // item, repeat)})
            if runs[-1]["wrong"]:
                return runs
    return runs


def _all_reduce(values: _Values, rank: int, elements: int, repeat: int) -> dict[str, Any]:
    start = repeat * exactness.SHIFT
    tensor = values.of_rank(rank, start, elements)
    _settle(tensor)
    began = time.monotonic()
    dist.all_reduce(tensor)
    _settle(tensor)
    seconds = time.monotonic() - began
    return {**_compare(tensor, values.of_sum(start, elements)), "seconds": round(seconds, 6)}


def _tried(
    collective: Callable[[_Values, int, int], dict[str, Any]], values: _Values, rank: int
) -> dict[str, Any]:
    """Return what a collective gave, or that this torch's gloo has none: 2.6 has no reduce_scatter.

    Each rank is refused before it sends anything, so that none loses step. NCCL has all of them.
    """
    try:
        return collective(values, rank, _ONE_SIZE // 4)
    except RuntimeError as error:
        if dist.get_backend() != "gloo" or "ProcessGroupGloo does not support" not in str(error):
            raise
        return {"elements": 0, "wrong": 0, "unsupported": f"{error}"}


def _settle(tensor: torch.Tensor) -> None:
    """Wait for what was started on the tensor's device, where that is not done at once."""
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


def _compare(measured: torch.Tensor, expected: torch.Tensor) -> dict[str, Any]:
    """Compare all elements; name the first wrong one."""
    result: dict[str, Any] = {"elements": measured.numel(), "wrong": 0}
    if torch.equal(measured, expected):
        return result
    wrong = torch.nonzero(measured != expected).flatten()
    first = int(wrong[0])
    result["wrong"] = wrong.numel()
    result["first"] = [first, float(measured[first]), float(expected[first])]
    return result


def _broadcast(values: _Values, rank: int, elements: int) -> dict[str, Any]:
    pieces = []
    for source in range(values.pattern.ranks):
        mine = values.of_rank(source, 0, elements)
        piece = mine if rank == source else torch.full_like(mine, -1)
        dist.broadcast(piece, source)
        pieces.append(piece)
    expected = [values.of_rank(source, 0, elements) for source in range(values.pattern.ranks)]
    return _compare(torch.cat(pieces), torch.cat(expected))


def _all_gather(values: _Values, rank: int, elements: int) -> dict[str, Any]:
    mine = values.of_rank(rank, 0, elements)
    pieces = [torch.full_like(mine, -1) for _ in range(values.pattern.ranks)]
    dist.all_gather(pieces, mine)
    expected = [values.of_rank(source, 0, elements) for source in range(values.pattern.ranks)]
    return _compare(torch.cat(pieces), torch.cat(expected))


def _reduce_scatter(values: _Values, rank: int, elements: int) -> dict[str, Any]:
    starts = [target * elements for target in range(values.pattern.ranks)]
    given = [values.of_rank(rank, start, elements) for start in starts]
    mine = torch.full_like(given[0], -1)
    dist.reduce_scatter(mine, given)
    return _compare(mine, values.of_sum(starts[rank], elements))


def _send_recv(values: _Values, rank: int, elements: int) -> dict[str, Any]:
    """Pass values once around the ring; rank 0 sends first, so that nobody waits for himself."""
    ranks = values.pattern.ranks
    source, target = (rank - 1) % ranks, (rank + 1) % ranks
    mine = values.of_rank(rank, 0, elements)
    received = torch.full_like(mine, -1)
    if rank == 0:
        dist.send(mine, target)
        dist.recv(received, source)
    else:
        dist.recv(received, source)
        dist.send(mine, target)
    return _compare(received, values.of_rank(source, 0, elements))


_ONE_SIZE_COLLECTIVES = {
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "send_recv": _send_recv,
}
