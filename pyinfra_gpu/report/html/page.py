"""The command `report`: the page, whose template shows a check's answer as it is."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import click
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from pyinfra_gpu import __version__
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.output import show
from pyinfra_gpu.report.check.answer import (
    WORDS,
    Answer,
    HostAnswer,
    found_in,
    verdict_of,
)
from pyinfra_gpu.report.check.cli import EXIT_CODES_TEXT, of_hosts, summary
from pyinfra_gpu.report.check.running import Request, run
from pyinfra_gpu.report.smoke import figures
from pyinfra_gpu.report.train.answer import HostRuns, told_of
from pyinfra_gpu.report.train.asking import ask_all
from pyinfra_gpu.stages.cuda.findings import NONE_DECLARED
from pyinfra_gpu.stages.finding import Id, Stage
from pyinfra_gpu.stages.training.findings import NO_REPOSITORY
from pyinfra_gpu.whole_file import replacing

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


@click.command("report", epilog=EXIT_CODES_TEXT)
@of_hosts
@click.option(
    "-o", "--output", metavar="FILE", required=True, help="the file to write; - prints the page",
    type=click.Path(allow_dash=True, dir_okay=False),
)  # fmt: skip
def command(request: Request, output: str) -> int:
    """Write what `check` shows as one HTML page.

    The page needs no network. It has a table of all hosts, then each host's deviations, versions,
    smoke test, training runs and package history.
    """
    target = Path(output).resolve()
    if output != "-" and not target.parent.is_dir():  # said before any host is asked
        raise click.ClickException(f"{target.parent} is not a folder")
    answer = run(request)
    runs = () if answer.reasons else ask_all(request, "list").hosts
    text = page(answer, {host.name: host for host in runs})
    if output == "-":
        return show(text) or answer.exit_code
    umask = os.umask(0o077)
    os.umask(umask)
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~umask
    try:
        with replacing(target, mode) as file:  # a web server may be sending it
            file.write(text.encode())
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error.strerror}") from None
    click.echo(f"{output}: {summary(answer)}")
    for reason in answer.reasons:
        click.echo(f"! {reason}", err=True)
    return answer.exit_code


def page(answer: Answer, trained: Mapping[str, HostRuns] | None = None) -> str:
    """Return the whole page; everything in it that comes from a host is escaped.

    + trained: the training runs of each host that was asked for them
    """
    found = {stage.stage for host in answer.hosts for stage in host.stages}
    runs = (trained or {}).items()
    return _template().render(
        answer=answer,
        hosts=answer.worst_first(),
        stages=[stage.value for stage in Stage if stage in found],
        runs={name: e for name, e in runs if e.runs or (e.reason and not e.absent)},
        style=Markup((_HERE / "style.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        version=__version__,
    )


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
    filters = (figures, told_of, code, value)
    environment.filters |= {each.__name__: each for each in filters}
    environment.tests["unread"] = lambda value: isinstance(value, Unknown)
    environment.globals |= {"cell": cell, "words": WORDS, "states": _STATES}
    return environment.get_template("page.html.j2")


def cell(host: HostAnswer, name: str) -> tuple[str, str]:
    """Return state and text of one stage of one host.

    A stage with nothing to do on this kind of host is not ok, nor is a test that is skipped.
    """
    stage = next((each for each in host.stages if each.stage == name), None)
    if stage is None:
        return "cut", "the check did not come this far"
    verdict, found = verdict_of(stage), found_in(stage)
    if verdict == "declared" and stage.findings.of(Id.SMOKE_SKIPPED):
        return "skipped", found
    if verdict == "declared" and found in ("", NONE_DECLARED, NO_REPOSITORY):
        return "none", found or "nothing is declared for it here"
    return verdict, found


def value(fact: object) -> str:
    """Return a version, or whatever else is told of a host, in words."""
    if isinstance(fact, Mapping):
        return f"unknown: {fact.get('unknown', 'no reason given')}"
    if isinstance(fact, list):
        counts = Counter(map(str, fact))
        fact = ", ".join(f"{n} x {name}" if n > 1 else name for name, n in counts.items())
    return "none" if fact in (None, "") else str(fact)


def code(text: str) -> Markup:
    """Escape a text; what stands in it between backquotes is code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part
        for number, part in enumerate(str(text).split("`"))
    )
