"""The smoke test: when, how large, and what its pass must prove."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyinfra_gpu.on_host.smoke.options import LARGEST_MIB
from pyinfra_gpu.spec import sources
from pyinfra_gpu.spec import values as v
from pyinfra_gpu.spec.key import Default, Given, computed, key, part

SmokeMode = Literal["gpu", "rehearsal-1gpu", "rehearsal-cpu"]

_GROUP = r"[A-Za-z][A-Za-z0-9_]{0,63}"


def _mode(given: Given) -> SmokeMode:
    if given.stack.accelerator == "cpu" or given["rehearsal"]:
        return "rehearsal-cpu"
    return "gpu" if given["gpu_count"] > 1 else "rehearsal-1gpu"


def _ranks(given: Given, asked: int) -> int:
    """In mode gpu there is one rank a GPU, on one GPU alone as well."""
    mode = _mode(given)
    if mode == "gpu":
        return max(int(given["gpu_count"]), asked)
    return 1 if mode == "rehearsal-1gpu" else asked


@dataclass(frozen=True, kw_only=True, slots=True)
class AcrossSpec:
    """The step across hosts that follows each host's own test.

    + hosts: the inventory group whose hosts take part; True = all that say True
    + address: where the other hosts reach this one; None = any of its addresses
    + port: at the group's first host, for torchrun's store
    + members: the names of those hosts, in the inventory's order; () until the inventory is known
    + impossible: why the group cannot train together, a clause; None where it can
    """

    hosts: str | Literal[True] = key(
        v.switch_or(_GROUP, "the name of a group"),
        default=False,
        allowed="True, False or the name of an inventory group",
        example="gpu",
        help="then one step on all hosts of that group; True = all that say True",
    )
    address: str | None = key(
        sources.ip_address,
        default=None,
        allowed="an IP address, or None for those the host has",
        example="10.1.2.3",
        help="where the other hosts reach this one",
    )
    port: int = key(
        v.integer(1024, 65_534),
        default=29400,
        example=29500,
        help="TCP port at the group's first host, for torchrun's store in that step",
    )
    members: tuple[str, ...] = ()
    impossible: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeSpec:
    """The smoke test.

    + mode: "gpu" on two real GPUs or more, "rehearsal-1gpu" on one, else "rehearsal-cpu"
    + ranks: one for each GPU in mode gpu
    + accept: "proof" = all that the declared hardware can prove, "two-gpus" = nothing less
    """

    run: Literal["auto", "always", "skip"] = key(
        v.choice("auto", "always", "skip"),
        default="auto",
        example="always",
        help="run the smoke test when something it depends on changed, always, or never",
        name="smoke",
    )
    mode: SmokeMode = computed(_mode)
    ranks: int = key(
        v.integer(2, 16),
        default=2,
        example=4,
        help="processes of the smoke test where it uses no real GPU; else one per GPU",
        settle=_ranks,
    )
    deadline_s: int = key(
        v.integer(10, 3600),
        default=180,
        example=600,
        help="seconds after which a smoke test counts as hung and is ended",
        synonyms=("smoke_deadline", "smoke_timeout"),
    )
    allreduce_mib: int = key(
        v.power_of_two(1, 1024),
        default=Default(
            f"{LARGEST_MIB['gpu']} on GPUs, {LARGEST_MIB['rehearsal-cpu']} on the CPU",
            lambda given: LARGEST_MIB[_mode(given)],
        ),
        example=128,
        help="MiB of the largest all-reduce",
    )
    accept: Literal["proof", "two-gpus"] = key(
        v.choice("proof", "two-gpus"),
        default="proof",
        example="two-gpus",
        help="what a pass must prove: all the declared hardware can, or two real GPUs",
    )
    limit_network: bool = key(
        v.boolean,
        default=True,
        example=False,
        help="while a smoke test runs, keep all but its own hosts from connecting to it",
    )
    across: AcrossSpec | None = part(
        AcrossSpec,
        stage="smoke",
        prefix="smoke_across_",
        when=lambda given: given["smoke_across_hosts"] is not False,
    )
