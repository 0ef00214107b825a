"""A host as a whole: every stage judged at once, with no run and no host to talk to."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from pyinfra_gpu.drift import (
    cuda,
    driver,
    environment,
    launcher,
    layout,
    libcuda,
    packages,
    preflight,
    pytorch,
    pytorch_build,
    smoke,
    training,
)
from pyinfra_gpu.drift.concern import Concern, history_of, judged, unread
from pyinfra_gpu.drift.finding import Findings, Stage
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec

CONCERNS: tuple[Concern, ...] = (
    preflight,
    driver,
    packages,
    layout,
    cuda,
    libcuda,
    pytorch,
    pytorch_build,
    environment,
    training,
    launcher,
    smoke,
)
"""In the order of the deploy."""

REFUSED_TOO = (Stage.DRIVER, Stage.CUDA, Stage.LIBCUDA)
"""Stages that are shown even of a host that preflight refuses: usually they say why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageJudgement:
    """What is so of one stage.

    + summary: what there is, in a few words, where nothing differs
    + unread: what could not be read and has to be known; then the stage is undetermined
    """

    stage: Stage
    summary: str
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
        stopped = any(each.stops for each in found)
        if stopped and not (found[0].stops and stage in REFUSED_TOO):
            continue
        concerns = [*group]
        judgement = StageJudgement(
            stage=stage,
            summary="; ".join(filter(None, (each.summary(spec, record) for each in concerns))),
            findings=Findings(x for each in concerns for x in judged(each, spec, record, history)),
            unread=tuple(x for each in concerns for x in unread(each, spec, record, planning=True)),
        )
        if judgement.findings or not stopped:
            found.append(judgement)
    return found
