"""What a check answers: per host a verdict and every deviation, as typed and as plain data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pyinfra_gpu.diagnosis.explained import Explained, explained
from pyinfra_gpu.facts.fields import Unknown, as_json
from pyinfra_gpu.facts.verdict import Verdict as SmokeVerdict
from pyinfra_gpu.host_names import natural
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.stages import host as drift
from pyinfra_gpu.stages.finding import Effect, Finding, Findings, Id, Stage
from pyinfra_gpu.stages.host import history_of
from pyinfra_gpu.stages.smoke import findings as smoke
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.packages.model import PackageChange
    from pyinfra_gpu.spec import HostSpec
    from pyinfra_gpu.stages.host import StageJudgement

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
_EFFECTS: dict[Effect, Verdict] = {
    "repair": "drift",
    "report": "drift",
    "restart": "restart",
    "note": "declared",
}
_RECENT = 40  # latest changes of packages that are kept of a host


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict that decides; without any, it is unknown."""
    return min(verdicts, key=_WORST_FIRST.index, default="unknown")


def verdict_of(stage: StageJudgement) -> Verdict:
    """Return the verdict of one stage."""
    if stage.unread:
        return "unknown"
    return worst([_EFFECTS[each.effect] for each in stage.findings] or ["declared"])


def found_in(stage: StageJudgement) -> str:
    """Say in a few words what a stage looked like."""
    return "; ".join(each.found for each in stage.findings) or "; ".join(
        filter(None, stage.summaries)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class HostAnswer:
    """One host.

    + stages: as they were judged, as far as the next deploy would come; () where they were not
    + problem: one sentence on why they were not; unreachable: it was not even connected to
    + facts: versions, as the run's report has them
    + smoke: the smoke test's last verdict
    + history: what happened to packages lately, oldest first
    """

    name: str
    stages: tuple[StageJudgement, ...] = ()
    rehearsal: bool = False
    problem: str | None = None
    unreachable: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    smoke: Explained | Unknown | None = None
    history: tuple[PackageChange, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of the stages."""
        return worst(map(verdict_of, self.stages))

    @property
    def reason(self) -> str | None:
        """One sentence on why it is undetermined, or who keeps it from its pending restart."""
        users = self.facts.get("gpu_users")
        if self.verdict == "restart" and isinstance(users, list) and users:
            return f"the GPUs are in use by {some([*map(str, users)], 4)}"
        return self.problem or "; ".join(text for e in self.stages for text in e.unread) or None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every deviation, and the notes, which are no drift."""
        return tuple(finding for stage in self.stages for finding in stage.findings)

    @property
    def deviations(self) -> tuple[Finding, ...]:
        """What is not as declared: the findings without the notes."""
        return tuple(each for each in self.findings if each.effect != "note")

    @property
    def notes(self) -> tuple[str, ...]:
        """What is good to know and no drift, a sentence each."""
        notes = (each for each in self.findings if each.effect == "note")
        return tuple(f"{each.found}; next deploy: {each.action}" for each in notes)

    @property
    def not_checked(self) -> tuple[str, ...]:
        """The stages that were not judged, since the next deploy stops before them."""
        judged = {each.stage for each in self.stages}
        stopped = any(each.stops for each in self.stages)
        return tuple(each for each in Stage if each not in judged) if stopped else ()

    @property
    def smoke_is_good(self) -> bool:
        """Whether the smoke test's verdict is valid for what is installed."""
        stage = next((each for each in self.stages if each.stage is Stage.SMOKE), None)
        apart = {Id.SMOKE_UNPROVEN_ACROSS_HOSTS}
        return stage is not None and not stage.unread and stage.findings.ids <= apart

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        smoke = as_json(self.smoke) if isinstance(self.smoke, Unknown) else None
        if isinstance(self.smoke, Explained):
            names = ("status", "mode", "proof", "finished")
            smoke = {name: getattr(self.smoke.verdict, name) for name in names}
            smoke["current"] = self.smoke_is_good
        return {
            "verdict": self.verdict,
            "rehearsal": self.rehearsal,
            "reason": self.reason,
            "deviations": [finding_as_json(each) for each in self.findings],
            "warnings": list(self.notes),
            "stages": {each.stage.value: verdict_of(each) for each in self.stages},
            "not_checked": list(self.not_checked),
            "facts": self.facts,
            "smoke": smoke,
        }


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

    def worst_first(self) -> list[HostAnswer]:
        """Return the hosts as they are shown, those alike in the natural order of their names."""

        def place(host: HostAnswer) -> tuple[Any, ...]:
            return _WORST_FIRST.index(host.verdict), -len(host.deviations), natural(host.name)

        return sorted(self.hosts, key=place)

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


def judge(spec: HostSpec, record: Record) -> HostAnswer:
    """Return the answer for one host: what is declared, compared with what one probe found."""
    stages = drift.judge(spec, record)
    compared = replace(record, torch=replace(record.torch, touched=0))
    why = smoke.stale(spec, record) if spec.smoke.run != "skip" else None
    if why and smoke.stale(spec, compared) is None:  # whether it holds is open for files alone
        stages = [_undetermined(each, f"{why}: the next deploy tests again") for each in stages]
    tested = record.smoke.verdict
    return answered(
        spec.host,
        stages,
        rehearsal=spec.rehearsal,
        facts=versions(record),
        smoke=explained(tested, record) if isinstance(tested, SmokeVerdict) else tested,
        history=history_of(record)[-_RECENT:],
    )


def _undetermined(stage: StageJudgement, why: str) -> StageJudgement:
    """Return the smoke test's stage as undetermined: a deploy would test again, without drift."""
    if stage.stage is not Stage.SMOKE:
        return stage
    findings = Findings(each for each in stage.findings if each.id is not Id.SMOKE_UNPROVEN)
    return replace(stage, findings=findings, unread=(*stage.unread, why))


def answered(name: str, stages: Sequence[StageJudgement], **known: Any) -> HostAnswer:
    """Return the answer that follows from the judgement of each stage.

    The smoke test that another driver needs is a part of the pending restart, where there is
    nothing else: then nobody has to do anything but to leave the host idle.

    + known: what else is known of the host, by the fields of `HostAnswer`
    """
    found = [(each.stage, finding) for each in stages for finding in each.findings]
    restart = any(finding.effect == "restart" for _, finding in found)
    apart = (f.effect in ("repair", "report") and s is not Stage.SMOKE for s, f in found)
    if restart and not any(apart) and not any(stage.unread for stage in stages):
        stages = [replace(each, findings=_pending(each.findings)) for each in stages]
    return HostAnswer(name=name, stages=tuple(stages), **known)


def _pending(findings: Findings) -> Findings:
    return Findings(e if e.effect == "note" else replace(e, effect="restart") for e in findings)


def finding_as_json(finding: Finding) -> dict[str, Any]:
    """Return a finding, with what the package manager's log knows of it."""
    names = ("found", "expected", "effect", "action", "command")
    values = {name: getattr(finding, name) for name in names}
    since = finding.since.as_json() if finding.since else None
    return {"id": finding.id.value, **values, "since": since}


def versions(record: Record) -> dict[str, Any]:
    """Return names and versions; `None` = not there, `{"unknown": reason}`.

    + driver_loaded, driver_installed, libcuda: the three versions that must be one
    + cuda: release of the declared toolkit's nvcc
    + gpu_users: processes that have a GPU's device open
    """
    system, driver, torch = record.system, record.driver, record.torch
    modules, libcuda, installed = driver.open_modules, driver.libcuda, torch.distributions
    if isinstance(libcuda, str):
        libcuda = re.sub(r".*libcuda\.so\.(\d+(?:\.\d+)+)$", r"\1", libcuda)
    packages = {} if isinstance(installed, Unknown) else installed
    values = {
        "os": system.os_name,
        "kernel": system.kernel,
        "cpus": system.cpu_count,
        "memory_mib": system.ram_mib,
        "gpus": _gpus(record),
        "gpu_users": driver.users,
        "driver_loaded": driver.loaded,
        "driver_modules": {"True": "open", "False": "proprietary"}.get(str(modules), modules),
        "driver_installed": driver.on_disk,
        "libcuda": libcuda,
        "cuda": record.cuda.nvcc,
        "python": torch.python,
        "torch": torch.version,
        "nccl": next((packages[n] for n in packages if n.startswith("nvidia-nccl-cu")), None),
    }
    return {name: as_json(value) for name, value in values.items()}


def _gpus(record: Record) -> tuple[str, ...] | Unknown:
    devices = record.gpus.devices
    if isinstance(devices, Unknown):
        return devices
    names = {pci_id: gpu.name for gpu in catalogue().gpus.values() for pci_id in gpu.pci_ids}
    return tuple(names.get(gpu.pci_id, f"NVIDIA {gpu.pci_id}") for gpu in devices)
