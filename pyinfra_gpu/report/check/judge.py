"""From a host's judgement to its answer. Pure; what could not be read is undetermined."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyinfra_gpu.drift import host as drift
from pyinfra_gpu.drift import smoke, smoke_across
from pyinfra_gpu.drift.concern import history_of
from pyinfra_gpu.drift.finding import Effect, Findings, Id, Stage
from pyinfra_gpu.report.check.answer import HostAnswer, StageAnswer, Verdict, worst
from pyinfra_gpu.report.plain import versions
from pyinfra_gpu.report.smoke import last_smoke
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyinfra_gpu.drift.host import StageJudgement
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_RECENT = 40
"""So many of the latest changes of packages are shown for each host."""

_EFFECTS: dict[Effect, Verdict] = {
    "repair": "drift",
    "report": "drift",
    "restart": "restart",
    "note": "declared",
}


def judge(spec: HostSpec, record: Record) -> HostAnswer:
    """Return the answer for one host.

    + spec: what is declared
    + record: what one probe found
    """
    stages = drift.judge(spec, record)
    if not_compared := _not_compared(spec, record):
        stages = [_undetermined(each, not_compared) for each in stages]
    apart = any(each.findings.of(Id.SMOKE_UNPROVEN_ACROSS_HOSTS) for each in stages)
    across = None if apart or smoke_across.declared(spec) is None else smoke_across.stamp(record)
    return answered(
        spec.host,
        stages,
        rehearsal=spec.rehearsal,
        facts=versions(record),
        smoke=last_smoke(record),
        across=across,
        history=history_of(record)[-_RECENT:],
    )


def answered(name: str, stages: Sequence[StageJudgement], **known: Any) -> HostAnswer:
    """Return the answer that follows from the judgement of each stage.

    + known: what else is known of the host, by the fields of `HostAnswer`
    """
    answers = tuple(map(_stage, stages))
    tested = next((each for each in stages if each.stage is Stage.SMOKE), None)
    judged = {each.stage for each in stages}
    stopped = any(each.stops for each in stages)
    answer = HostAnswer(
        name=name,
        verdict=worst(each.verdict for each in answers),
        reason="; ".join(text for stage in stages for text in stage.unread) or None,
        findings=tuple(finding for stage in stages for finding in stage.findings),
        stages=answers,
        not_checked=tuple(each for each in Stage if each not in judged) if stopped else (),
        smoke_is_good=tested is not None
        and not tested.unread
        and tested.findings.ids <= {Id.SMOKE_UNPROVEN_ACROSS_HOSTS},
        **known,
    )
    return _with_consequences(answer)


def _stage(stage: StageJudgement) -> StageAnswer:
    verdicts = [_EFFECTS[each.effect] for each in stage.findings] or ["declared"]
    found = "; ".join(each.found for each in stage.findings) or stage.summary
    verdict: Verdict = "unknown" if stage.unread else worst(verdicts)
    return StageAnswer(name=stage.stage.value, verdict=verdict, found=found)


def _not_compared(spec: HostSpec, record: Record) -> str | None:
    """Return why it is open whether the smoke test is still valid; None where that is known.

    A deploy tests again then. That files were not compared in time does not make them drift.
    """
    number = record.torch.touched
    if not isinstance(number, int) or not number or spec.smoke.run == "skip":
        return None
    compared = replace(record, torch=replace(record.torch, touched=0))
    if smoke.stale(spec, compared) is not None:
        return None
    return (
        f"{number} files of torch's environment were touched since the smoke test passed, and"
        " there was no time to compare them: the next deploy tests again"
    )


def _undetermined(stage: StageJudgement, why: str) -> StageJudgement:
    """Return the smoke test's stage as undetermined, and each other stage as it is."""
    if stage.stage is not Stage.SMOKE:
        return stage
    findings = Findings(each for each in stage.findings if each.id is not Id.SMOKE_UNPROVEN)
    return replace(stage, findings=findings, unread=(*stage.unread, why))


def _with_consequences(answer: HostAnswer) -> HostAnswer:
    """Count the smoke test that another driver needs as a part of the pending restart.

    Only where there is nothing else: then nobody has to do anything but to leave the host idle.
    """
    drifted = [each for each in answer.findings if _EFFECTS[each.effect] == "drift"]
    restart = any(each.effect == "restart" for each in answer.findings)
    beside = any(each.stage is not Stage.SMOKE for each in drifted)
    if answer.verdict == "unknown" or not restart or beside:
        return answer
    findings = tuple(
        replace(each, effect="restart") if each in drifted else each for each in answer.findings
    )
    stages = tuple(
        replace(each, verdict="restart") if each.verdict == "drift" else each
        for each in answer.stages
    )
    users = answer.facts.get("gpu_users")
    if isinstance(users, list) and users:
        by = f"the GPUs are in use by {some([*map(str, users)], 4)}"
        answer = replace(answer, reason=answer.reason or by)
    return replace(answer, verdict="restart", findings=findings, stages=stages)
