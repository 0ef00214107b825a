"""The page: the template shows answers as they are, and here is what it cannot work out itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from pyinfra_gpu import __version__
from pyinfra_gpu.drift.cuda import NONE_DECLARED
from pyinfra_gpu.drift.finding import Id, Stage
from pyinfra_gpu.drift.history import moment, what, who
from pyinfra_gpu.drift.training import NO_REPOSITORY
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict import AnyVerdict
from pyinfra_gpu.report import smoke
from pyinfra_gpu.report.check.answer import WORDS, Answer, HostAnswer, worst, worst_first
from pyinfra_gpu.report.check.past import Past
from pyinfra_gpu.report.train.answer import HostRuns
from pyinfra_gpu.report.train.render import told_of

_HERE = Path(__file__).parent
_RUNS = 5
"""So many of a host's training runs are shown, the newest."""
_STRIP = 30
"""So many earlier checks are shown."""

_STATES = {  # of a stage: symbol and word; those that are no verdict are "cell"'s
    "declared": ("✓", "ok"),
    "drift": ("≠", "drift"),
    "restart": ("↻", "restart"),
    "unknown": ("?", "unknown"),
    "none": ("–", "not declared"),  # noqa: RUF001
    "skipped": ("–", "skipped"),  # noqa: RUF001
    "cut": ("·", "not seen"),
}
_FACTS = {
    "os": "System",
    "kernel": "Kernel",
    "machine": "Machine",
    "gpus": "GPUs",
    "gpu_users": "GPUs used by",
    "driver_loaded": "Driver loaded",
    "driver_installed": "Driver installed",
    "libcuda": "libcuda",
    "cuda": "CUDA toolkit",
    "python": "Python",
    "torch": "torch",
    "nccl": "NCCL",
}


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
    environment.filters |= {"moment": moment, "what": what, "who": who, "code": _code}
    environment.filters |= {"bytes": _bytes, "rate": _rate}
    environment.tests["unread"] = lambda value: isinstance(value, Unknown)
    environment.globals |= {"cell": _cell, "facts": _facts, "torch": _torch, "smoke": smoke}
    return environment.get_template("page.html.j2")


def page(
    answer: Answer, earlier: Sequence[Past] = (), trained: Mapping[str, HostRuns] | None = None
) -> str:
    """Return the whole page; everything in it that comes from a host is escaped.

    + earlier: what checks of the same inventory said before, oldest first
    + trained: the training runs of each host that was asked for them
    """
    found = {stage.name for host in answer.hosts for stage in host.stages}
    names = {host.name for host in answer.hosts}
    return _template().render(
        answer=answer,
        hosts=worst_first(answer.hosts),
        stages=[stage.value for stage in Stage if stage.value in found],
        # One that was limited to other hosts, or to some of these, says nothing of the fleet.
        checks=[
            (past.when, worst(past.hosts[name] for name in names))
            for past in earlier
            if names and names <= past.hosts.keys()
        ][-_STRIP:],
        checks_of={
            name: [(e.when, e.hosts[name]) for e in earlier if name in e.hosts][-_STRIP:]
            for name in names
        },
        runs={name: _runs(host) for name, host in (trained or {}).items()},
        unread={n: host.reason for n, host in (trained or {}).items() if not host.absent},
        rehearsals=sum(host.rehearsal for host in answer.hosts),
        words=WORDS,
        states=_STATES,
        style=Markup((_HERE / "style.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        version=__version__,
    )


def _runs(host: HostRuns) -> list[dict[str, Any]]:
    """Return a host's newest training runs: what is said of each, and how its loss went."""
    return [
        {
            "name": run.run,
            "outcome": run.outcome,
            "state": "drift"
            if run.wrong
            else "declared"
            if run.on or run.outcome == "finished"
            else "none",
            "text": " · ".join(told_of(run)),
            "losses": run.losses,
        }
        for run in reversed(host.runs[-_RUNS:])
    ]


def _cell(host: HostAnswer, name: str) -> tuple[str, str]:
    """Return state and text of one stage of one host in the table of the fleet.

    A stage with nothing to do on this kind of host is not ok, nor is a test that is skipped.
    """
    stage = next((each for each in host.stages if each.name == name), None)
    if stage is None:
        return "cut", "the check did not come this far"
    if stage.verdict != "declared":
        return stage.verdict, stage.found
    if any(each.id is Id.SMOKE_SKIPPED and each.stage == name for each in host.findings):
        return "skipped", stage.found
    if not stage.found or stage.found in (NONE_DECLARED, NO_REPOSITORY):
        return "none", stage.found or "nothing is declared for it here"
    return stage.verdict, stage.found


def _facts(host: HostAnswer) -> list[tuple[str, str]]:
    """Return label and value of each version."""
    if not host.facts:
        return []
    shown = {name: _text(value) for name, value in host.facts.items()}
    memory = host.facts.get("memory_mib")
    amount = f"{memory / 1024:.0f} GiB" if isinstance(memory, int | float) else "memory unknown"
    shown["machine"] = f"{shown.get('cpus') or 'unknown'} CPUs, {amount}"
    if shown.get("driver_loaded") and shown.get("driver_modules"):
        shown["driver_loaded"] += f" ({shown['driver_modules']} modules)"
    return [(label, shown.get(name) or "none") for name, label in _FACTS.items()]


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return f"unknown: {value.get('unknown', 'no reason given')}"
    if isinstance(value, list):
        counts = Counter(map(str, value))
        return ", ".join(f"{n} × {name}" if n > 1 else name for name, n in counts.items())  # noqa: RUF001
    return "" if value is None else str(value)


def _torch(host: HostAnswer, verdict: AnyVerdict) -> str:
    """Return which torch was tested, where that is known."""
    version = getattr(getattr(verdict, "software", None), "torch", None)
    fallback = any(each.id == Id.PYTORCH_FALLBACK for each in host.findings)
    return f"torch {version}{', the fallback' if fallback else ''}, " if version else ""


def _code(text: str) -> Markup:
    """Escape a text; what stands in it between backquotes is code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part
        for number, part in enumerate(text.split("`"))
    )


def _bytes(size: float) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:.3g} B"


def _rate(mb_per_s: float) -> str:
    if mb_per_s >= 1000:
        return f"{mb_per_s / 1000:.3g} GB/s"
    return f"{mb_per_s:.3g} MB/s" if mb_per_s >= 1 else f"{mb_per_s * 1000:.3g} kB/s"
