"""The checks of S4 on what collectives gave: every element is compared with its closed form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import exactness
from .check import Check, Expected, Facts, Finding, measured


def _all_reduce(kind: str) -> Callable[[Facts, Expected], Finding]:
    def decide(facts: Facts, expected: Expected) -> Finding:
        item = exactness.item_size(kind)
        sizes = exactness.sizes(expected.allreduce_mib)
        wanted = [[size, size // item, 0] for size in sizes for _ in range(exactness.REPEATS)]
        for rank, fact in facts.items():
            runs = fact[f"allreduce_{kind}"]["runs"]
            for number, run in enumerate(runs):
                if run["wrong"]:
                    repeat = number % exactness.REPEATS + 1
                    what = f"{exactness.size_name(run['size'])} {kind}, repeat {repeat}"
                    return _wrong_elements(rank, run, what)
            measured = [[run["size"], run["elements"], run["wrong"]] for run in runs]
            if measured != wanted:
                detail = f"rank {rank} did not compare every element of every size"
                return Finding(False, measured, wanted, detail, rank)
        return Finding(True, _summary(sizes, 0), _summary(sizes, 0), _sizes_text(sizes))

    return decide


def _summary(sizes: Sequence[int], wrong: int) -> dict[str, Any]:
    return {"bytes": list(sizes), "repeats": exactness.REPEATS, "wrong_elements": wrong}


def _sizes_text(sizes: Sequence[int]) -> str:
    first, last = exactness.size_name(sizes[0]), exactness.size_name(max(sizes))
    return f"{first} to {last}, {exactness.REPEATS} times"


def _collective(name: str) -> Callable[[Facts, Expected], Finding]:
    def decide(facts: Facts, _: Expected) -> Finding:
        if all("unsupported" in fact[name] for fact in facts.values()):
            detail = f"not tried: this torch's gloo has no {name}"
            return Finding(True, None, None, detail, status="skip")
        for rank, fact in facts.items():
            if fact[name]["wrong"]:
                return _wrong_elements(rank, fact[name], name)
            if not fact[name]["elements"]:
                return Finding(False, 0, "elements compared", f"rank {rank} compared none", rank)
        zero = {"wrong_elements": 0}
        return Finding(True, zero, zero, f"{fact[name]['elements']} elements")

    return decide


def _wrong_elements(rank: int, run: Mapping[str, Any], what: str) -> Finding:
    index, measured, wanted = run["first"]
    detail = (
        f"{what}: rank {rank} has {run['wrong']} of {run['elements']} elements wrong, "
        f"the first is element {index}: {measured!r} in place of {wanted!r}"
    )
    return Finding(False, {"wrong_elements": run["wrong"]}, {"wrong_elements": 0}, detail, rank)


CHECKS: tuple[Check, ...] = measured(
    "collectives",
    Check("S4.allreduce_exact", ("allreduce_float32",), _all_reduce("float32"), each=True),
    Check("S4.allreduce_exact_bf16", ("allreduce_bfloat16",), _all_reduce("bfloat16"), each=True),
    Check("S4.broadcast", ("broadcast",), _collective("broadcast"), each=True),
    Check("S4.all_gather", ("all_gather",), _collective("all_gather"), each=True),
    Check("S4.reduce_scatter", ("reduce_scatter",), _collective("reduce_scatter"), each=True),
    Check("S4.send_recv", ("send_recv",), _collective("send_recv"), each=True),
    across=True,
)
