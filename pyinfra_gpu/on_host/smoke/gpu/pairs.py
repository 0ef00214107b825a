"""All-reduce between every two GPUs alone, each element compared with its closed form.

In a ring over all GPUs most pairs never talk to each other; a broken path between two of them
shows only in a group of these two.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .. import exactness
from ..ranks.rank import Rank

_MIB = 64


class WrongDataError(Exception):
    """A pair got wrong data; what was wrong is in the journal."""


def rounds(ranks: int) -> list[list[tuple[int, int]]]:
    """Return every pair of `ranks` once, in rounds whose pairs have no rank in common.

    As a tournament is played: one seat stays, the others move on by one each round.
    """
    seats: list[int | None] = [*range(ranks), *([None] if ranks % 2 else [])]
    half = len(seats) // 2
    played = []
    for _ in range(len(seats) - 1):
        games = zip(seats[:half], reversed(seats[half:]), strict=True)
        pairs = [(min(a, b), max(a, b)) for a, b in games if a is not None and b is not None]
        played.append(sorted(pairs))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return played


def measure(it: Rank, mib: int = _MIB) -> None:
    """Record the fact `pairs`: what this rank saw in each pair it belongs to.

    With two ranks their world is the only pair and was tested as such: nothing is repeated.
    Raises WrongDataError after the first wrong pair of this rank.
    """
    with it.journal.measuring("pairs") as value:
        value["world"] = it.world_size
        value["results"] = [] if it.world_size == 2 else _all(it, mib)
    if any(result["wrong"] for result in value["results"]):
        raise WrongDataError("all-reduce of a pair")


def _all(it: Rank, mib: int) -> list[dict[str, Any]]:
    results = []
    for pairs in rounds(it.world_size):
        # Every rank must take part in making every group, in the same order.
        groups = {pair: dist.new_group(list(pair)) for pair in pairs}
        for pair, group in groups.items():
            if it.rank in pair:
                it.journal.step(f"all-reduce of ranks {pair[0]} and {pair[1]}")
                result = _one(group, pair.index(it.rank), it.device, mib)
                results.append({"ranks": list(pair), **result})
        dist.barrier()
        for pair, group in groups.items():
            if it.rank in pair:
                dist.destroy_process_group(group)
    return results


def _one(group: Any, place: int, device: torch.device, mib: int) -> dict[str, Any]:
    pattern = exactness.pattern("float32", 2)
    elements = mib * 2**20 // exactness.item_size("float32")
    base = (torch.arange(elements, device=device) % pattern.period).to(torch.float32)
    tensor = base + pattern.offset(place)
    dist.all_reduce(tensor, group=group)
    expected = base.mul_(pattern.ranks).add_(pattern.offsets)
    result: dict[str, Any] = {"elements": elements, "wrong": 0}
    if not torch.equal(tensor, expected):
        wrong = torch.nonzero(tensor != expected).flatten()
        first = int(wrong[0])
        result["wrong"] = wrong.numel()
        result["first"] = [first, float(tensor[first]), float(expected[first])]
    return result
