"""From a dry run's report to verdicts. Pure; what is missing or damaged is "could not tell"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyinfra_gpu.engine.journal import ERROR_ABOVE
from pyinfra_gpu.report.check.answer import (
    REFUSED,
    Change,
    Finding,
    HostAnswer,
    StageAnswer,
    Verdict,
    worst,
)

_EFFECTS: dict[str, Verdict] = {
    "repair": "drift",
    "report": "drift",
    "restart": "restart",
    "note": "declared",
}
_UNREACHABLE = "could not be reached: "
_UNREADABLE = "its part of the run's report cannot be read"


def judge(name: str, host: object, said: Sequence[str] = ()) -> HostAnswer:
    """Return the answer for one host.

    + host: its part of the report that a dry run wrote; None = there is none
    + said: what pyinfra printed at this host's name, for reasons that the report does not have
    """
    said = [word for word in said if not _tells_nothing(name, word)]
    if host is None:
        word = said[-1] if said else None
        reason = f"{_UNREACHABLE}{word}" if word else "the check broke off before this host"
        return HostAnswer(name=name, verdict="unknown", reason=reason)
    if not isinstance(host, Mapping):
        return HostAnswer(name=name, verdict="unknown", reason=_UNREADABLE)
    try:
        return _judge(name, host, said)
    except (KeyError, TypeError, ValueError, AttributeError):
        rehearsal = host.get("rehearsal") is True
        return HostAnswer(name=name, verdict="unknown", rehearsal=rehearsal, reason=_UNREADABLE)


def _judge(name: str, host: Mapping[str, Any], said: Sequence[str]) -> HostAnswer:
    stages = [_stage(name, each) for each in host["stages"]]
    findings = [finding for stage in stages for finding in stage.findings]
    smoke, across = host.get("smoke") or host.get("last_smoke"), host.get("smoke_across")
    answer = HostAnswer(
        name=name,
        verdict=worst([stage.verdict for stage in stages]),
        rehearsal=host.get("rehearsal") is True,
        reason=_reason(stages, said),
        findings=tuple(findings),
        warnings=tuple(text for stage in stages for text in stage.warnings),
        stages=tuple(stage.shown() for stage in stages),
        facts=dict(host.get("facts") or {}),
        smoke=smoke if isinstance(smoke, dict) else None,
        smoke_is_good=isinstance(host.get("smoke"), dict),
        across=across if isinstance(across, dict) else None,
        history=tuple(_change(each) for each in host.get("history") or ()),
    )
    if host["status"] == "unreachable":
        return replace(answer, verdict="unknown", reason=f"{_UNREACHABLE}{_why(said)}")
    if host["complete"] is not True or not stages:
        broke_off = f"the check broke off: {_why(said)}"
        return replace(answer, verdict="unknown", reason=answer.reason or broke_off)
    return _with_consequences(answer)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stage:
    name: str
    verdict: Verdict
    found: str
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    problem: str | None
    unreadable: bool

    def shown(self) -> StageAnswer:
        return StageAnswer(name=self.name, verdict=self.verdict, found=self.found)


def _stage(host: str, stage: Mapping[str, Any]) -> _Stage:
    name, problem = str(stage["stage"]), stage["problem"]
    unreadable = stage.get("unreadable") is True
    told = [_finding(each) for each in stage["deviations"]]
    findings = list(told)
    if rest := _rest(stage, told):
        findings.append(_differs(name, stage, rest))
    if problem and not unreadable and all(each.effect == "note" for each in findings):
        findings.append(_refused(host, name, str(problem)))
    verdict = worst([_EFFECTS[each.effect] for each in findings] or ["declared"])
    return _Stage(
        name=name,
        verdict="unknown" if unreadable else verdict,
        found="; ".join(map(str, stage["found"])),
        findings=tuple(findings),
        warnings=_warnings(host, stage, told),
        problem=_without_name(host, str(problem)) if problem else None,
        unreadable=unreadable,
    )


def _finding(deviation: Mapping[str, Any]) -> Finding:
    effect = deviation["effect"]
    if effect not in _EFFECTS:
        raise ValueError(effect)
    since = deviation.get("since")
    command = deviation.get("command")
    return Finding(
        id=str(deviation["id"]),
        found=str(deviation["found"]),
        expected=str(deviation["expected"]),
        effect=effect,
        action=str(deviation["action"]),
        command=str(command) if command else None,
        since=_change(since) if since else None,
    )


def _change(change: Mapping[str, Any]) -> Change:
    by = change.get("by")
    return Change(
        when=str(change["when"]), by=str(by) if by else None, change=str(change["change"])
    )


def _rest(stage: Mapping[str, Any], told: Sequence[Finding]) -> list[str]:
    """Return what the stage would change beside its deviations, each of which notes its action."""
    rest = [str(each) for each in stage["changed"]]
    for finding in told:
        if finding.action in rest:
            rest.remove(finding.action)
    return rest


def _differs(name: str, stage: Mapping[str, Any], rest: Sequence[str]) -> Finding:
    return Finding(
        id=f"{name}.differs",
        found="; ".join(map(str, stage["found"])) or "not as declared",
        expected="as declared",
        effect="repair",
        action=f"changes: {', '.join(rest)}",
    )


def _refused(host: str, name: str, problem: str) -> Finding:
    return Finding(
        id=f"{name}{REFUSED}",
        found=_without_name(host, problem),
        expected="a host that can become what is declared",
        effect="report",
        action="stops here: nothing after this is looked at or changed",
    )


def _warnings(host: str, stage: Mapping[str, Any], told: Sequence[Finding]) -> tuple[str, ...]:
    """Return the warnings that do not merely repeat a deviation."""
    texts = [_without_name(host, str(each)) for each in stage["warnings"]]
    repeated = tuple(f"{each.found}; expected {each.expected}" for each in told)
    return tuple(text for text in texts if not text.startswith(repeated or ("\0",)))


def _without_name(host: str, sentence: str) -> str:
    """Return a sentence without the host's name, which stands above it already."""
    return sentence.replace(f"{host}: ", "")


def _reason(stages: Sequence[_Stage], said: Sequence[str]) -> str | None:
    """Return what the next run would stop at, unless a deviation says it already."""
    for stage in stages:
        if stage.problem and not (stage.findings and stage.findings[-1].id.endswith(REFUSED)):
            return stage.problem.replace(ERROR_ABOVE, _why(said))
    return None


def _with_consequences(answer: HostAnswer) -> HostAnswer:
    """Count the smoke test that another driver owes as a part of the restart that is owed.

    Only where there is nothing else: then nobody has to do anything but to leave the host idle.
    """
    drift = [each for each in answer.findings if _EFFECTS[each.effect] == "drift"]
    restart = any(each.effect == "restart" for each in answer.findings)
    if answer.verdict == "unknown" or not restart or any(each.stage != "smoke" for each in drift):
        return answer
    findings = tuple(
        replace(each, effect="restart") if each in drift else each for each in answer.findings
    )
    stages = tuple(
        replace(each, verdict="restart") if each.verdict == "drift" else each
        for each in answer.stages
    )
    reason = answer.reason or _in_use(answer.facts.get("gpu_users"))
    return replace(answer, verdict="restart", reason=reason, findings=findings, stages=stages)


def _in_use(users: object) -> str | None:
    """Name who keeps the host from being idle, where the run did not come to say so."""
    if not isinstance(users, list) or not users:
        return None
    more = f" and {len(users) - 4} more" if len(users) > 4 else ""
    return f"the GPUs are in use by {', '.join(map(str, users[:4]))}{more}"


def _tells_nothing(host: str, word: str) -> bool:
    """Whether a line is pyinfra's progress, or a sentence of ours that the report has as well."""
    return word.startswith(("Connected", "Ready:", "Disconnected", f"{host}: "))


def _why(said: Sequence[str]) -> str:
    """Return the last thing that pyinfra printed at this host's name."""
    return said[-1] if said else "pyinfra did not say why"
