"""What a check is: the facts it needs, what is expected of them, and how it is decided.

Pure, like all of this package: functions of facts that others wrote down, read by the launcher on
a host and by the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..options import REHEARSAL_CPU
from ..torch_location import TorchLocation

Facts = Mapping[int, Mapping[str, Any]]
"""Rank -> fact name -> value, in the order of the ranks."""


@dataclass(frozen=True)
class Expected:
    """What the launcher knows before any rank runs."""

    ranks: int
    allreduce_mib: int
    torch: TorchLocation
    removed: Sequence[str]
    mode: str = REHEARSAL_CPU
    devices: int = 1
    """How many devices are tried one by one before the ranks run."""
    gpus: int = 0
    """How many GPUs the caller declares."""
    gpu_host: Mapping[str, Any] | None = None
    """What is known of the GPUs before torch is imported; None where none is used."""
    gpu_kinds: Sequence[Mapping[str, Any]] = ()
    """What sound GPUs show, see `gpu.expected.Kind`."""
    compile: bool = True
    """Whether programs on this host are meant to use torch.compile."""
    hosts: Mapping[str, int] = field(default_factory=dict)
    """Of a step across hosts: host -> the number of its ranks."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check. `rank` is the rank to look at, None if not one in particular."""

    ok: bool
    measured: Any
    expected: Any
    detail: str = ""
    rank: int | None = None
    status: str | None = None
    """In place of pass or fail: warn or skip, and the run goes on; or unknown, with `ok` false."""


@dataclass(frozen=True)
class Check:
    """A check that can be decided as soon as every participant has recorded the facts it needs.

    The participants of S4 are the ranks; of S1 to S3 one process a device; of S0 and S5 the
    launcher alone, as number 0. An id begins with the stage's.
    """

    id: str
    needs: tuple[str, ...]
    decide: Callable[[Facts, Expected], Finding]
    each: bool = False
    """Whether a failure shows on one rank's facts alone, when the other ranks have none."""
    by: str | None = None
    """The measurement on ranks that supplies the facts: a module of `ranks`, or "gpu.NAME". None:
    every rank, or whoever takes part, writes them down anyway."""
    across: bool = False
    """Whether the step across hosts asks for it too."""


def measured(by: str, *checks: Check, across: bool = False) -> tuple[Check, ...]:
    """Return checks that have their facts from one measurement on ranks; see `Check`."""
    return tuple(replace(check, by=by, across=across) for check in checks)


def measurements(checks: Iterable[Check]) -> tuple[str, ...]:
    """Return what ranks must measure for `checks`, in the order in which it is first needed."""
    return tuple(dict.fromkeys(check.by for check in checks if check.by))


def pairs(value: Mapping[str, Any]) -> str:
    """Return "key value, key value", for sentences."""
    return ", ".join(f"{key} {item}" for key, item in value.items())
