"""What a check answers: per host a verdict and every deviation, as typed and as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.host_names import natural
from pyinfra_gpu.report.plain import finding_as_json

if TYPE_CHECKING:
    from pyinfra_gpu.diagnosis.explained import Explained
    from pyinfra_gpu.drift.finding import Finding
    from pyinfra_gpu.facts.verdict import AcrossStamp
    from pyinfra_gpu.packages.model import PackageChange

Verdict = Literal["declared", "restart", "drift", "unknown"]
EXIT_CODES: dict[Verdict, int] = {"declared": 0, "unknown": 1, "drift": 2, "restart": 3}
WORDS: dict[Verdict, str] = {
    "unknown": "undetermined",
    "drift": "drift",
    "restart": "restart pending",
    "declared": "as declared",
}
"""What is said of each verdict, the worst first."""
_WORST_FIRST = tuple(WORDS)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict that decides; without any, it is unknown."""
    return min(verdicts, key=_WORST_FIRST.index, default="unknown")


@dataclass(frozen=True, kw_only=True, slots=True)
class StageAnswer:
    """One stage of a host; `found` says in a few words what it looked like."""

    name: str
    verdict: Verdict
    found: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HostAnswer:
    """One host.

    + reason: one sentence on why it is undetermined, or who keeps it from its pending restart
    + unreachable: whether it was not even connected to
    + findings: every deviation, and the notes, which are no drift (effect "note")
    + not_checked: stages that were not judged, since the next deploy stops before them
    + facts: versions, as the run's report has them
    + smoke: the smoke test's last verdict; smoke_is_good: whether it is valid for what is installed
    + across: what the host's stamp says of a multi-node step that is still valid
    + history: what happened to packages lately, oldest first
    """

    name: str
    verdict: Verdict
    rehearsal: bool = False
    reason: str | None = None
    unreachable: bool = False
    findings: tuple[Finding, ...] = ()
    stages: tuple[StageAnswer, ...] = ()
    not_checked: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    smoke: Explained | Unknown | None = None
    smoke_is_good: bool = False
    across: AcrossStamp | None = None
    history: tuple[PackageChange, ...] = ()

    @property
    def deviations(self) -> tuple[Finding, ...]:
        """What is not as declared: the findings without the notes."""
        return tuple(each for each in self.findings if each.effect != "note")

    @property
    def notes(self) -> tuple[str, ...]:
        """What is good to know and no drift, a sentence each."""
        notes = (each for each in self.findings if each.effect == "note")
        return tuple(f"{each.found}; next deploy: {each.action}" for each in notes)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        smoke: dict[str, Any] | None = None
        if isinstance(self.smoke, Unknown):
            smoke = dict(self.smoke.to_json())
        elif self.smoke is not None:
            names = ("status", "mode", "proof", "finished")
            smoke = {name: getattr(self.smoke.verdict, name) for name in names}
            smoke["current"] = self.smoke_is_good
        return {
            "verdict": self.verdict,
            "rehearsal": self.rehearsal,
            "reason": self.reason,
            "deviations": [finding_as_json(each) for each in self.findings],
            "warnings": list(self.notes),
            "stages": {each.name: each.verdict for each in self.stages},
            "not_checked": list(self.not_checked),
            "facts": self.facts,
            "smoke": smoke,
        }


def worst_first(hosts: Iterable[HostAnswer]) -> list[HostAnswer]:
    """Return hosts as they are shown: the worst first, and in the natural order of their names."""
    return sorted(
        hosts,
        key=lambda each: (
            _WORST_FIRST.index(each.verdict),
            -len(each.deviations),
            natural(each.name),
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The whole check.

    + checked: when it began, UTC, e.g. "2026-11-21T06:12:03Z"
    + reasons: why the inventory as a whole is undetermined; then `hosts` may be empty
    """

    inventory: str
    checked: str
    seconds: float
    hosts: tuple[HostAnswer, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of the hosts; unknown where the inventory itself is wrong."""
        return "unknown" if self.reasons else worst(host.verdict for host in self.hosts)

    @property
    def exit_code(self) -> int:
        """0 as declared, 1 undetermined, 2 drift, 3 only a restart is pending."""
        return EXIT_CODES[self.verdict]

    def counts(self) -> dict[Verdict, int]:
        """Return how many hosts have each verdict, worst first, without zeros."""
        found = [host.verdict for host in self.hosts]
        return {each: found.count(each) for each in _WORST_FIRST if each in found}

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data; what is in it stays, new keys may come."""
        return {
            "schema_version": 1,
            "inventory": self.inventory,
            "checked": self.checked,
            "seconds": round(self.seconds, 2),
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "reasons": list(self.reasons),
            "hosts": {host.name: host.as_json() for host in self.hosts},
        }
