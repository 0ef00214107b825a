"""What a module of `drift/` that judges one part of a host offers, and how it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from pyinfra_gpu.drift.deferral import deferred, deferred_by, undetermined
from pyinfra_gpu.drift.finding import Findings, Stage
from pyinfra_gpu.drift.history import explain
from pyinfra_gpu.drift.layout import shut
from pyinfra_gpu.drift.rules import Rules
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.packages.model import PackageChange
from pyinfra_gpu.spec import HostSpec


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
    reasons = [*concern.judge.unread(spec, record)]
    if reason := undetermined(spec, record, concern.STAGE):
        reasons.append(reason)
    return tuple(dict.fromkeys(reasons))


def judged(
    concern: Concern, spec: HostSpec, record: Record, history: Sequence[PackageChange]
) -> Findings:
    """Return the findings of one concern, each with the package action that explains it.

    + history: what the package manager's log has, newest last
    """
    found = deferred(concern.judge(spec, record), deferred_by(record))
    return Findings(replace(each, since=explain(each.packages, history)) for each in found)


def history_of(record: Record) -> tuple[PackageChange, ...]:
    """Return what the package manager's log on a host has, newest last; nothing if unreadable."""
    history = record.nvidia.history
    return () if isinstance(history, Unknown) else history
