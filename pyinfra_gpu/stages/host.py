"""A host as a whole: every stage judged at once, with no run and no host to talk to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Protocol

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.packages.model import PackageChange, explain
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.cuda import findings as cuda
from pyinfra_gpu.stages.driver import findings as driver
from pyinfra_gpu.stages.environment import findings as environment
from pyinfra_gpu.stages.finding import Finding, Findings, Id, Stage
from pyinfra_gpu.stages.launcher import findings as launcher
from pyinfra_gpu.stages.layout import findings as layout
from pyinfra_gpu.stages.libcuda import findings as libcuda
from pyinfra_gpu.stages.packages import findings as packages
from pyinfra_gpu.stages.preflight import findings as preflight
from pyinfra_gpu.stages.pytorch import findings as pytorch
from pyinfra_gpu.stages.pytorch_build import findings as pytorch_build
from pyinfra_gpu.stages.rules import Rules, if_known, running
from pyinfra_gpu.stages.smoke import findings as smoke
from pyinfra_gpu.stages.training import findings as training

_USED_BY_RUNS = (Stage.DRIVER, Stage.LIBCUDA, Stage.PYTORCH, Stage.SMOKE)
_OF_THE_CHECKOUT = (*training.CHECKOUT, Id.TRAINING_REQUIREMENTS_DIFFER)


class Concern(Protocol):
    """What judges a stage: the `findings` of its room, beside the `operations` that act on them."""

    @property
    def STAGE(self) -> Stage:  # noqa: N802 - a module's constant
        """The stage it belongs to."""

    def summary(self, spec: HostSpec, record: Record) -> str:
        """Say in a few words what there is, where nothing differs; empty where nothing is ours."""

    @property
    def judge(self) -> Rules:
        """In what the host is not as declared, in the order in which it is repaired."""


CONCERNS: tuple[Concern, ...] = (
    *(preflight, driver, packages, layout, cuda, libcuda),
    *(pytorch, pytorch_build, environment, training, launcher, smoke),
)
"""In the order of the deploy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageJudgement:
    """What is so of one stage.

    + summaries: what there is, in a few words, of each part in which nothing differs
    + unread: what could not be read and has to be known; then the stage is undetermined
    """

    stage: Stage
    summaries: tuple[str, ...]
    findings: Findings
    unread: tuple[str, ...]

    @property
    def stops(self) -> bool:
        """Whether the next run goes no further than this stage."""
        return bool(self.unread or self.findings.stopping)


def judge(spec: HostSpec, record: Record) -> list[StageJudgement]:
    """Return every stage's judgement, in the deploy's order, as far as the next run would come."""
    found: list[StageJudgement] = []
    history = history_of(record)
    for stage, group in groupby(CONCERNS, key=lambda each: each.STAGE):
        parts = {each: judged(each, spec, record, history) for each in group}
        judgement = StageJudgement(
            stage=stage,
            summaries=tuple(each.summary(spec, record) for each in parts if not parts[each]),
            findings=Findings(each for part in parts.values() for each in part),
            unread=tuple(each for part in parts for each in unread(part, spec, record)),
        )
        found.append(judgement)
        if judgement.stops:
            break
    return found


def unread(concern: Concern, spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return what could not be read of a host and has to be known, a clause each."""
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
    runs = running(record)
    found = (_dated(each, history) for each in concern.judge(spec, record))
    return Findings(_deferred(each, runs) if runs and _waits(each) else each for each in found)


def _dated(each: Finding, history: Sequence[PackageChange]) -> Finding:
    """Say since when; nothing logs who puts a package on hold, or takes it off."""
    held = each.id is Id.DRIVER_HOLD_DIFFERS
    return each if held else replace(each, since=explain(each.packages, history))


def _waits(each: Finding) -> bool:
    if each.id in _OF_THE_CHECKOUT:
        return each.acts or each.stops
    uses = each.id.stage in _USED_BY_RUNS and each.id not in driver.UNDER_A_RUN
    return uses and each.acts and not each.stops


def _deferred(each: Finding, runs: str) -> Finding:
    return replace(
        each,
        effect="note" if each.effect == "note" else "report",
        action=f"waits for {runs}, which uses it: run again when that has ended",
        command=None,
        repeats=False,
        stops=False,
        deferred=True,
    )


def history_of(record: Record) -> tuple[PackageChange, ...]:
    """Return what the package manager's log on a host has, newest last; nothing if unreadable."""
    return if_known(record.nvidia.history, ())
