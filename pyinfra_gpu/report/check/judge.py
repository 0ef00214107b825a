"""From a host's judgement to its answer. Pure; what could not be read is "could not tell"."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyinfra_gpu.drift import host as drift
from pyinfra_gpu.drift import smoke_across
from pyinfra_gpu.drift.concern import history_of
from pyinfra_gpu.drift.finding import Effect, Id, Stage
from pyinfra_gpu.facts.verdict import Stamp
from pyinfra_gpu.facts.verdict import Verdict as SmokeVerdict
from pyinfra_gpu.report.check.answer import HostAnswer, StageAnswer, Verdict, worst
from pyinfra_gpu.report.plain import versions
from pyinfra_gpu.report.run import RECENT
from pyinfra_gpu.report.smoke import last_smoke
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyinfra_gpu.drift.host import StageJudgement
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.facts.verdict import AcrossStamp
    from pyinfra_gpu.spec import HostSpec

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
    answer = answered(
        spec.host,
        stages,
        rehearsal=spec.rehearsal,
        facts=versions(record),
        smoke=last_smoke(record),
        across=_across(spec, record, stages),
        history=history_of(record)[-RECENT:],
    )
    return answer if _is_the_stamped_one(record) else replace(answer, smoke_is_good=False)


def answered(name: str, stages: Sequence[StageJudgement], **known: Any) -> HostAnswer:
    """Return the answer that follows from the judgement of each stage.

    + known: what else is known of the host, by the fields of `HostAnswer`
    """
    answers = tuple(map(_stage, stages))
    smoke = next((each for each in stages if each.stage is Stage.SMOKE), None)
    answer = HostAnswer(
        name=name,
        verdict=worst(each.verdict for each in answers),
        reason="; ".join(text for stage in stages for text in stage.unread) or None,
        findings=tuple(finding for stage in stages for finding in stage.findings),
        stages=answers,
        smoke_is_good=smoke is not None and smoke.findings.ids <= {Id.SMOKE_UNPROVEN_ACROSS_HOSTS},
        **known,
    )
    return _with_consequences(answer)


def _stage(stage: StageJudgement) -> StageAnswer:
    verdicts = [_EFFECTS[each.effect] for each in stage.findings] or ["declared"]
    found = "; ".join(each.found for each in stage.findings) or stage.summary
    verdict: Verdict = "unknown" if stage.unread else worst(verdicts)
    return StageAnswer(name=stage.stage.value, verdict=verdict, found=found)


def _is_the_stamped_one(record: Record) -> bool:
    """Tell whether the verdict is the one that root's stamp is about: the owner can edit it."""
    stamp, verdict = record.smoke.stamp, record.smoke.verdict
    if not isinstance(stamp, Stamp) or not isinstance(verdict, SmokeVerdict):
        return True  # then there is none to show, or none to compare it with
    names = ("fingerprint", "status", "mode", "finished")
    return all(getattr(stamp, name) == getattr(verdict, name) for name in names)


def _across(spec: HostSpec, record: Record, stages: Sequence[StageJudgement]) -> AcrossStamp | None:
    """Return what the stamp says of the multi-node step, as long as that holds."""
    unproven = any(each.findings.of(Id.SMOKE_UNPROVEN_ACROSS_HOSTS) for each in stages)
    if unproven or smoke_across.declared(spec) is None:
        return None
    return smoke_across.stamp(record)


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
    in_use = isinstance(users, list) and f"the GPUs are in use by {some([*map(str, users)], 4)}"
    reason = answer.reason or (in_use if users and in_use else None)
    return replace(answer, verdict="restart", reason=reason, findings=findings, stages=stages)
