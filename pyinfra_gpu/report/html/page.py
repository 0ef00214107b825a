"""The page: what the template shows, prepared so that the template only lays it out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pyinfra_gpu import __version__
from pyinfra_gpu.drift.finding import Stage
from pyinfra_gpu.drift.history import moment, what, who
from pyinfra_gpu.report import smoke as smoke_report
from pyinfra_gpu.report.check.answer import WORDS, Answer, HostAnswer, Verdict
from pyinfra_gpu.report.check.past import Past
from pyinfra_gpu.report.html import plots

_HERE = Path(__file__).parent
_STATUS = {"pass": "pass", "warn": "pass, degraded", "fail": "fail"}
_TAIL = 12
"""Lines of a log."""
_STRIP = 30
"""So many earlier checks are shown."""

_SYMBOLS = {"declared": "✓", "drift": "≠", "restart": "↻", "unknown": "?", "none": "–", "cut": "·"}  # noqa: RUF001
_SHORT = {
    "declared": "ok",
    "drift": "drift",
    "restart": "restart",
    "unknown": "unknown",
    "none": "none",
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
    """One stage of one host in the table of the fleet; `state` is a verdict, "none" or "cut"."""

    stage: str
    state: str
    told: str


@dataclass(frozen=True, slots=True)
class Mark:
    """One earlier check in a strip."""

    when: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class HostView:
    """One host as the page shows it."""

    answer: HostAnswer
    anchor: str
    cells: tuple[Cell, ...]
    facts: tuple[tuple[str, str], ...]
    strip: tuple[Mark, ...]
    smoke: SmokeView | None


@dataclass(frozen=True, slots=True)
class SmokeView:
    """The smoke test's last verdict."""

    status: str
    passed: bool
    good: bool
    label: str
    finished: str
    figures: tuple[str, ...]
    told: tuple[str, ...]
    failed: FailureView | None
    across: tuple[str, ...]
    checks: tuple[tuple[str, str, str], ...]
    plots: tuple[tuple[str, Markup], ...]


@dataclass(frozen=True, slots=True)
class FailureView:
    """What failed, the line that shows it, why and what to do; the last lines where none knows."""

    what: str
    evidence: str
    cause: Markup
    fix: tuple[Markup, ...]
    tail: str


def page(answer: Answer, earlier: Sequence[Past] = ()) -> str:
    """Return the whole page; everything in it that comes from a host is escaped.

    + earlier: what checks of the same inventory said before, oldest first
    """
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"moment": moment, "what": what, "who": who}
    stages = _columns(answer.hosts)
    return environment.get_template(
        "page.html.j2"
    ).render(
        answer=answer,
        style=Markup((_HERE / "style.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        stages=stages,
        hosts=[_host(number, host, stages, earlier) for number, host in enumerate(answer.hosts)],
        strip=[Mark(past.when, past.verdict) for past in earlier[-_STRIP:]],
        rehearsals=sum(host.rehearsal for host in answer.hosts),
        words=WORDS,
        symbols=_SYMBOLS,
        short=_SHORT,
        version=__version__,
    )


def _columns(hosts: Sequence[HostAnswer]) -> list[str]:
    """Return the stages that any host has, in the deploy's order."""
    found = {stage.name for host in hosts for stage in host.stages}
    return [stage.value for stage in Stage if stage.value in found]


def _host(
    number: int, host: HostAnswer, stages: Sequence[str], earlier: Sequence[Past]
) -> HostView:
    strip = [Mark(past.when, past.hosts[host.name]) for past in earlier if host.name in past.hosts]
    return HostView(
        answer=host,
        anchor=f"host-{number}",
        cells=tuple(_cell(host, stage) for stage in stages),
        facts=_facts(host.facts),
        strip=tuple(strip[-_STRIP:]),
        smoke=_smoke(host),
    )


def _cell(host: HostAnswer, name: str) -> Cell:
    """A stage that found and changed nothing has nothing to do on this kind of host."""
    stage = next((each for each in host.stages if each.name == name), None)
    if stage is None:
        return Cell(name, "cut", "the check did not come this far")
    if stage.verdict == "declared" and not stage.found:
        return Cell(name, "none", "nothing is declared for it here")
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


def _smoke(host: HostAnswer) -> SmokeView | None:
    verdict = host.smoke
    if verdict is None:
        return None
    metrics = verdict.get("metrics")
    metrics = metrics if isinstance(metrics, Mapping) else {}
    drawn = (
        ("All-reduce rate by size", plots.bandwidth(metrics)),
        ("Loss of one training step", plots.loss(metrics)),
    )
    return SmokeView(
        status=_STATUS.get(str(verdict.get("status")), "unknown"),
        passed=verdict.get("status") in ("pass", "warn"),
        good=host.smoke_is_good,
        label=str(verdict.get("label") or verdict.get("mode") or ""),
        finished=str(verdict.get("finished", "never finished")),
        figures=_figures(verdict),
        told=tuple(smoke_report.figures(verdict)),
        failed=_failed(verdict),
        across=_across(host.across),
        checks=_checks(verdict),
        plots=tuple((title, drawing) for title, drawing in drawn if drawing is not None),
    )


def _across(stamped: Mapping[str, Any] | None) -> tuple[str, ...]:
    if stamped is None or "failed" in stamped:
        return ()
    return tuple(smoke_report.across_figures(stamped))


def _failed(verdict: Mapping[str, Any]) -> FailureView | None:
    failed = verdict.get("failed")
    if not isinstance(failed, Mapping):
        return None
    root = smoke_report.root(verdict) or {}
    tail = failed.get("tail")
    lines = tail[-_TAIL:] if isinstance(tail, list) and not root else []
    return FailureView(
        what=f"{failed.get('id')}: {failed.get('sentence')}",
        evidence=str(root.get("evidence") or ""),
        cause=_code(root.get("cause") or ""),
        fix=tuple(_code(step) for step in root.get("fix") or ()),
        tail="\n".join(map(str, lines)),
    )


def _code(text: object) -> Markup:
    """Escape a text; what stands in it between backquotes is code."""
    parts = str(text).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part
        for number, part in enumerate(parts)
    )


def _all_checks(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    checks = verdict.get("checks")
    return (
        [each for each in checks if isinstance(each, Mapping)] if isinstance(checks, list) else []
    )


def _figures(verdict: Mapping[str, Any]) -> tuple[str, ...]:
    checks = _all_checks(verdict)
    passed = sum(check.get("status") == "pass" for check in checks)
    ranks = verdict.get("ranks")
    figures = [f"{passed} of {len(checks)} checks passed"]
    if isinstance(ranks, list):
        figures.append(f"{len(ranks)} ranks")
    if isinstance(verdict.get("duration_s"), int | float):
        figures.append(f"{verdict['duration_s']:.1f} s")
    return tuple(figures)


def _checks(verdict: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """Return (status, id, detail) of the checks that neither passed nor were skipped."""
    return tuple(
        (str(each.get("status")), str(each.get("id")), str(each.get("detail", "")))
        for each in _all_checks(verdict)
        if each.get("status") not in ("pass", "skip")
    )
