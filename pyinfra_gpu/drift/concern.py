"""How a part of a host is judged: what differs, since when, and what a training run puts off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from pyinfra_gpu.drift import training
from pyinfra_gpu.drift.finding import Finding, Findings, Id, Stage
from pyinfra_gpu.drift.layout import shut
from pyinfra_gpu.drift.rules import Rules, if_known
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.packages.model import PackageChange, explain
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.text import some

_USED_BY_RUNS = (Stage.DRIVER, Stage.LIBCUDA, Stage.PYTORCH, Stage.SMOKE)
_PUT_OFF_TOO = (
    # It stops a run that would load another driver; with these stages put off, none is loaded.
    Id.PREFLIGHT_GPUS_IN_USE,
    *training.CHECKOUT,
    Id.TRAINING_REQUIREMENTS_DIFFER,
)
_NAMED = 3  # so many runs are named


class Concern(Protocol):
    """A module that judges: the twin of the module in `operations/` that acts on what it finds."""

    @property
    def STAGE(self) -> Stage:  # noqa: N802 - a module's constant
        """The stage it belongs to."""

    def summary(self, spec: HostSpec, record: Record) -> str:
        """Say in a few words what there is, where nothing differs; empty where nothing is ours."""

    @property
    def judge(self) -> Rules:
        """In what the host is not as declared, in the order in which it is repaired."""


def unread(
    concern: Concern, spec: HostSpec, record: Record, *, planning: bool = False
) -> tuple[str, ...]:
    """Return what could not be read of a host and has to be known, a clause each.

    Acting on a guess is how a tool breaks a host that was fine.

    + planning: leave out what the owner may not see before the layout stage has opened the
      directories again; once that stage has run it counts as anything else does
    """
    if planning and shut(spec, record):
        return ()
    reasons, runs = [*concern.judge.unread(spec, record)], record.launcher.runs
    if spec.training and concern.STAGE in _USED_BY_RUNS and isinstance(runs, Unknown):
        reasons.append(f"cannot tell whether a training run is running: {runs.reason}")
    return tuple(dict.fromkeys(reasons))


def judged(
    concern: Concern, spec: HostSpec, record: Record, history: Sequence[PackageChange]
) -> Findings:
    """Return the findings of one concern, each with the package action that explains it.

    + history: what the package manager's log has, newest last

    What would touch what a training run uses is left until it has ended.
    """
    runs = deferred_by(record)
    found = (replace(x, since=explain(x.packages, history)) for x in concern.judge(spec, record))
    return Findings(_deferred(each, runs) if runs else each for each in found)


def deferred_by(record: Record) -> str:
    """Name the training runs that are running; empty where none is."""
    runs = if_known(record.launcher.runs, ())
    return f"run{'s' * (len(runs) > 1)} {some(runs, _NAMED)}" if runs else ""


def _deferred(each: Finding, runs: str) -> Finding:
    alone = each.id in _PUT_OFF_TOO
    if not (alone if each.stops else each.acts and (alone or each.stage in _USED_BY_RUNS)):
        return each
    return replace(
        each,
        effect="note" if each.effect == "note" else "report",
        action=f"waits for {runs}, which uses it: run again when that has ended",
        command=None,
        repeats=False,
        stops=False,
    )


def history_of(record: Record) -> tuple[PackageChange, ...]:
    """Return what the package manager's log on a host has, newest last; nothing if unreadable."""
    return if_known(record.nvidia.history, ())
