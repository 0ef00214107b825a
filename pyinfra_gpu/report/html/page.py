"""The page: the template shows answers as they are, and here is what it cannot work out itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from pyinfra_gpu import __version__
from pyinfra_gpu.drift.cuda import NONE_DECLARED
from pyinfra_gpu.drift.finding import Id, Stage
from pyinfra_gpu.drift.history import moment, what, who
from pyinfra_gpu.drift.training import NO_REPOSITORY
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict import AnyVerdict
from pyinfra_gpu.report.check.answer import (
    WORDS,
    Answer,
    HostAnswer,
    found_in,
    verdict_of,
    worst_first,
)
from pyinfra_gpu.report.smoke import across_figures, figures, why
from pyinfra_gpu.report.train.answer import HostRuns
from pyinfra_gpu.report.train.render import told_of

_HERE = Path(__file__).parent
_STATES = {  # of a stage: symbol and word
    "declared": ("✓", "ok"),
    "drift": ("≠", "drift"),
    "restart": ("↻", "restart"),
    "unknown": ("?", "undetermined"),
    "none": ("–", "not declared"),  # noqa: RUF001
    "skipped": ("–", "skipped"),  # noqa: RUF001
    "cut": ("·", "not checked"),
}


@cache
def _template() -> Template:
    """Return the template; to read it takes longer than to fill it in."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (moment, what, who, figures, across_figures, why, told_of, _code, _value)
    environment.filters |= {each.__name__.lstrip("_"): each for each in filters}
    environment.tests["unread"] = lambda value: isinstance(value, Unknown)
    environment.globals |= {"cell": _cell, "torch": _torch, "words": WORDS, "states": _STATES}
    environment.globals |= {"version": __version__}
    return environment.get_template("page.html.j2")


def page(answer: Answer, trained: Mapping[str, HostRuns] | None = None) -> str:
    """Return the whole page; everything in it that comes from a host is escaped.

    + trained: the training runs of each host that was asked for them
    """
    found = {stage.stage for host in answer.hosts for stage in host.stages}
    return _template().render(
        answer=answer,
        hosts=worst_first(answer.hosts),
        stages=[stage.value for stage in Stage if stage in found],
        runs={
            name: host
            for name, host in (trained or {}).items()
            if host.runs or (host.reason and not host.absent)
        },
        style=Markup((_HERE / "style.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
    )


def _cell(host: HostAnswer, name: str) -> tuple[str, str]:
    """Return state and text of one stage of one host.

    A stage with nothing to do on this kind of host is not ok, nor is a test that is skipped.
    """
    stage = next((each for each in host.stages if each.stage == name), None)
    if stage is None:
        return "cut", "the check did not come this far"
    verdict, found = verdict_of(stage), found_in(stage)
    if verdict != "declared":
        return verdict, found
    if stage.findings.of(Id.SMOKE_SKIPPED):
        return "skipped", found
    if not found or found in (NONE_DECLARED, NO_REPOSITORY):
        return "none", found or "nothing is declared for it here"
    return verdict, found


def _value(fact: object) -> str:
    """Return a version, or whatever else is told of a host, in words."""
    if isinstance(fact, Mapping):
        return f"unknown: {fact.get('unknown', 'no reason given')}"
    if isinstance(fact, list):
        counts = Counter(map(str, fact))
        fact = ", ".join(f"{n} x {name}" if n > 1 else name for name, n in counts.items())
    return "none" if fact in (None, "") else str(fact)


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
