"""The page: what the template shows, prepared so that the template only lays it out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from pyinfra_gpu import __version__
from pyinfra_gpu.diagnosis.explained import Explained
from pyinfra_gpu.drift.cuda import NONE_DECLARED
from pyinfra_gpu.drift.finding import Id, Stage
from pyinfra_gpu.drift.history import moment, what, who
from pyinfra_gpu.drift.training import NO_REPOSITORY
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict import AcrossStamp, Verdict
from pyinfra_gpu.report import smoke as smoke_report
from pyinfra_gpu.report.check.answer import WORDS, Answer, HostAnswer, worst
from pyinfra_gpu.report.check.answer import Verdict as Outcome
from pyinfra_gpu.report.check.past import Past
from pyinfra_gpu.report.html import plots
from pyinfra_gpu.report.train.answer import HostRuns, Run
from pyinfra_gpu.report.train.render import told_of

_HERE = Path(__file__).parent
_STATUS = {"pass": "pass", "warn": "pass, degraded", "fail": "fail"}
_TAIL = 12
"""Lines of a log."""
_RUNS = 5
"""So many of a host's runs are shown, the newest."""
_STRIP = 30
"""So many earlier checks are shown."""

_SYMBOLS = {
    "declared": "✓",
    "drift": "≠",
    "restart": "↻",
    "unknown": "?",
    "none": "–",  # noqa: RUF001
    "skipped": "–",  # noqa: RUF001
    "cut": "·",
}
_SHORT = {
    "declared": "ok",
    "drift": "drift",
    "restart": "restart",
    "unknown": "unknown",
    "none": "not declared",
    "skipped": "skipped",
    "cut": "not seen",
}
_FACTS = (
    ("os", "System"),
    ("kernel", "Kernel"),
    ("machine", "Machine"),
    ("gpus", "GPUs"),
    ("gpu_users", "GPUs used by"),
    ("driver_loaded", "Driver loaded"),
    ("driver_installed", "Driver installed"),
    ("libcuda", "libcuda"),
    ("cuda", "CUDA toolkit"),
    ("python", "Python"),
    ("torch", "torch"),
    ("nccl", "NCCL"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One stage of one host in the table of the fleet.

    + state: a verdict, "none" (nothing is declared), "skipped" (by data) or "cut" (not seen)
    """

    stage: str
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """One earlier check in a strip."""

    when: str
    verdict: Outcome


@dataclass(frozen=True, slots=True)
class HostView:
    """One host as the page shows it."""

    answer: HostAnswer
    anchor: str
    cells: tuple[Cell, ...]
    facts: tuple[tuple[str, str], ...]
    strip: tuple[Mark, ...]
    smoke: SmokeView | str | None
    runs: tuple[RunView, ...] = ()
    runs_unread: str = ""


@dataclass(frozen=True, slots=True)
class RunView:
    """One training run.

    + state: of the badge: "declared" where all is well, "drift" where somebody should look
    + told: its step, loss and speed, as far as they are known
    """

    name: str
    state: str
    outcome: str
    told: str
    curve: Markup | None


@dataclass(frozen=True, slots=True)
class SmokeView:
    """The smoke test's last verdict; `good`: whether it stands for what is installed now."""

    status: str
    passed: bool
    good: bool
    label: str
    finished: str
    summary: tuple[str, ...]
    figures: tuple[str, ...]
    failed: FailureView | None
    across: tuple[str, ...]
    checks: tuple[tuple[str, str, str], ...]
    plots: tuple[tuple[str, Markup], ...]


@dataclass(frozen=True, slots=True)
class FailureView:
    """What failed, the line that shows it, why and what to do; the last lines where none knows."""

    what: str
    evidence: tuple[str, ...]
    cause: Markup
    fix: tuple[Markup, ...]
    tail: str


@cache
def _template() -> Template:
    """Return the page without what is on it; to read it takes longer than to fill it in."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"moment": moment, "what": what, "who": who}
    return environment.get_template("page.html.j2")


def page(
    answer: Answer, earlier: Sequence[Past] = (), trained: Mapping[str, HostRuns] | None = None
) -> str:
    """Return the whole page; everything in it that comes from a host is escaped.

    + earlier: what checks of the same inventory said before, oldest first
    + trained: the training runs of each host that was asked for them
    """
    stages = _columns(answer.hosts)
    return _template().render(
        answer=answer,
        style=Markup((_HERE / "style.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        stages=stages,
        hosts=[
            _host(number, host, stages, earlier, (trained or {}).get(host.name))
            for number, host in enumerate(answer.worst_first)
        ],
        strip=_of_the_fleet(answer.hosts, earlier)[-_STRIP:],
        rehearsals=sum(host.rehearsal for host in answer.hosts),
        words=WORDS,
        symbols=_SYMBOLS,
        short=_SHORT,
        version=__version__,
    )


def _of_the_fleet(hosts: Sequence[HostAnswer], earlier: Sequence[Past]) -> list[Mark]:
    """Return the earlier checks that looked at all of these hosts, each with what it said of them.

    One that was limited to others, or to some of them, says nothing of the fleet.
    """
    names = {host.name for host in hosts}
    return [
        Mark(past.when, worst([past.hosts[name] for name in names]))
        for past in earlier
        if names and names <= past.hosts.keys()
    ]


def _columns(hosts: Sequence[HostAnswer]) -> list[str]:
    """Return the stages that any host has, in the deploy's order."""
    found = {stage.name for host in hosts for stage in host.stages}
    return [stage.value for stage in Stage if stage.value in found]


def _host(
    number: int,
    host: HostAnswer,
    stages: Sequence[str],
    earlier: Sequence[Past],
    trained: HostRuns | None,
) -> HostView:
    strip = [Mark(past.when, past.hosts[host.name]) for past in earlier if host.name in past.hosts]
    return HostView(
        answer=host,
        anchor=f"host-{number}",
        cells=tuple(_cell(host, stage) for stage in stages),
        facts=_facts(host.facts),
        strip=tuple(strip[-_STRIP:]),
        smoke=_smoke(host),
        runs=tuple(_run(run) for run in reversed(trained.runs[-_RUNS:])) if trained else (),
        runs_unread=(trained.reason or "") if trained and not trained.absent else "",
    )


def _run(run: Run) -> RunView:
    good = "declared" if run.on or run.outcome == "finished" else "none"
    return RunView(
        name=run.run,
        state="drift" if run.wrong else good,
        outcome=run.outcome,
        told=" · ".join(told_of(run)),
        curve=plots.curve(run.losses),
    )


def _cell(host: HostAnswer, name: str) -> Cell:
    """A stage with nothing to do on this kind of host is not ok, nor is a test that is skipped."""
    stage = next((each for each in host.stages if each.name == name), None)
    if stage is None:
        return Cell(name, "cut", "the check did not come this far")
    if stage.verdict != "declared":
        return Cell(name, stage.verdict, stage.found)
    if any(each.id is Id.SMOKE_SKIPPED and each.stage == name for each in host.findings):
        return Cell(name, "skipped", stage.found)
    if not stage.found or stage.found in (NONE_DECLARED, NO_REPOSITORY):
        return Cell(name, "none", stage.found or "nothing is declared for it here")
    return Cell(name, stage.verdict, stage.found)


def _facts(facts: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    if not facts:
        return ()
    shown = {name: _text(value) for name, value in facts.items()}
    shown["machine"] = _machine(facts)
    if shown.get("driver_loaded") and shown.get("driver_modules"):
        shown["driver_loaded"] += f" ({shown['driver_modules']} modules)"
    return tuple((label, shown.get(name) or "none") for name, label in _FACTS)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return f"unknown: {value.get('unknown', 'no reason given')}"
    if isinstance(value, list):
        counts = Counter(map(str, value))
        return ", ".join(f"{n} × {name}" if n > 1 else name for name, n in counts.items())  # noqa: RUF001
    return str(value)


def _machine(facts: Mapping[str, Any]) -> str:
    memory = facts.get("memory_mib")
    amount = f"{memory / 1024:.0f} GiB" if isinstance(memory, int | float) else "memory unknown"
    return f"{_text(facts.get('cpus'))} CPUs, {amount}"


def _smoke(host: HostAnswer) -> SmokeView | str | None:
    """Return the test to show; a sentence where the host has a verdict that cannot be read."""
    test = host.smoke
    if isinstance(test, Unknown):
        return f"The last verdict on the host cannot be read: {test.reason}"
    if test is None or not isinstance(test.verdict, Verdict):
        return None
    verdict = test.verdict
    drawn = (
        ("All-reduce rate by size", plots.bandwidth(verdict.metrics)),
        ("Loss of one training step", plots.loss(verdict.metrics)),
    )
    return SmokeView(
        status=_STATUS.get(verdict.status, "unknown"),
        passed=verdict.passed,
        good=host.smoke_is_good,
        label=verdict.label,
        finished=verdict.finished,
        summary=(
            *_tested(host, verdict),
            f"{len(verdict.having('pass'))} of {len(verdict.checks)} checks passed",
            f"{len(verdict.ranks)} ranks",
            f"{verdict.duration_s:.1f} s",
        ),
        figures=tuple(smoke_report.figures(verdict)),
        failed=_failed(test),
        across=_across(host.across),
        checks=tuple(
            (each.status, each.id, each.detail)
            for each in verdict.having("warn", "fail", "unknown")
        ),
        plots=tuple((title, drawing) for title, drawing in drawn if drawing is not None),
    )


def _tested(host: HostAnswer, verdict: Verdict) -> tuple[str, ...]:
    """Return which torch was tested, where that is known."""
    torch = verdict.software.torch
    if torch is None:
        return ()
    falls_back = any(each.id == Id.PYTORCH_FALLBACK for each in host.findings)
    return (f"torch {torch}, the fallback" if falls_back else f"torch {torch}",)


def _across(value: smoke_report.Across | None) -> tuple[str, ...]:
    if not isinstance(value, AcrossStamp):
        return ()
    return tuple(smoke_report.across_figures(value))


def _failed(test: Explained) -> FailureView | None:
    failed, root = test.verdict.failed, test.root
    if failed is None:
        return None
    return FailureView(
        what=f"{failed.id}: {failed.sentence}",
        evidence=(root.line,) if root else (),
        cause=_code(root.cause if root else ""),
        fix=tuple(_code(str(step)) for step in root.fix) if root else (),
        tail="" if root else "\n".join(failed.tail[-_TAIL:]),
    )


def _code(text: str) -> Markup:
    """Escape a text; what stands in it between backquotes is code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part
        for number, part in enumerate(parts)
    )
