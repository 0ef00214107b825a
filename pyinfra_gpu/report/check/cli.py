"""The command `check`, and what it shares with all that ask the hosts of an inventory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial, wraps
from getpass import getpass
from typing import Any

import click

from pyinfra_gpu.engine.look import Unanswered
from pyinfra_gpu.output import show
from pyinfra_gpu.report import screen
from pyinfra_gpu.report.check.answer import (
    WORDS,
    Answer,
    HostAnswer,
    Verdict,
    found_in,
    verdict_of,
)
from pyinfra_gpu.report.check.running import Request, hosts_of, known, run
from pyinfra_gpu.stages.finding import Finding
from pyinfra_gpu.text import WIDTH, columns, draws

EXIT_CODES_TEXT = (
    "exit code: 0 every host is as declared; 2 drift; 3 only a restart is pending;"
    " 1 undetermined: a host could not be reached or read, or the inventory is wrong."
    " With several hosts, 1 takes precedence over 2, and 2 over 3."
)
_FEW = 8
"""So many deviations are shown in full; a new host has more, and a line for each is enough."""

_STYLES: dict[Verdict, str] = {
    "declared": "green",
    "restart": "bold cyan",
    "drift": "bold yellow",
    "unknown": "bold red",
}


def known_of(context: click.Context) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return groups, and hosts with their data, of a command line that is being completed.

    Behind an option that has no value yet click leaves what stood before it unnamed.
    """
    given = context.params
    inventory = str(given.get("inventory") or next(iter(context.args), ""))
    groups, hosts = known(Request(inventory=inventory, limit=tuple(given.get("limit") or ())))
    return groups, dict(hosts)


def _hosts(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    groups, hosts = known_of(context)
    return [each for each in (*groups, *hosts) if each.startswith(begun)]


_PATTERN: dict[str, Any] = {"metavar": "PATTERN", "multiple": True, "shell_complete": _hosts}
_WHICH = (
    click.argument("inventory", type=click.Path()),
    click.option(
        "--limit", **_PATTERN, help="only these hosts: a name, group or pattern; repeatable"
    ),
    click.option(
        "--exclude", **_PATTERN, help="all but these hosts: a name, group or pattern; repeatable"
    ),
    click.option(
        "--data", metavar="KEY=VALUE", multiple=True, help="set a key of all hosts; repeatable"
    ),
    click.option("--same-sudo-password", is_flag=True, help="ask once for all hosts' password"),
)


def of_hosts(function: Callable[..., int]) -> Callable[..., int]:
    """Give a command what says which hosts are meant; it is called with that, as a `Request`."""

    @wraps(function)
    def called(*, same_sudo_password: bool, **given: Any) -> int:
        which = {name: given.pop(name) for name in ("inventory", "limit", "exclude", "data")}
        password = getpass("sudo password: ") if same_sudo_password else None
        return function(Request(**which, sudo_password=password), **given)

    for each in reversed(_WHICH):
        called = each(called)
    return called


@click.command("check", epilog=EXIT_CODES_TEXT)
@of_hosts
@click.option("--json", "as_json", is_flag=True, help="print the answer as JSON")
@click.option("-v", "--verbose", is_flag=True, help="show each host separately and in full")
def command(request: Request, as_json: bool, verbose: bool) -> int:
    """Show what is not as declared on each host; changes nothing.

    For each deviation: what was found, what was expected, since when, and what the next deploy
    does about it.
    """
    so_far: dict[str, HostAnswer | Unanswered] = {}
    render_as = partial(render, whole=verbose, width=columns(), coloured=draws(sys.stdout))
    try:
        answer = run(request, so_far)
    except SystemExit:
        if so_far and not as_json:
            answer = Answer(inventory="", checked="", seconds=0, hosts=hosts_of(so_far))
            show(render_as(answer, ended="ended before the other hosts had answered"))
        raise
    document = json.dumps(answer.as_json(), indent=2, sort_keys=True) if as_json else ""
    return show(document or render_as(answer)) or answer.exit_code


def render(
    answer: Answer,
    *,
    whole: bool = False,
    width: int = WIDTH,
    coloured: bool = False,
    ended: str = "",
) -> str:
    """Return a line for the hosts that are as declared, all deviations of the others, a summary.

    + whole: show each host by itself, with every stage
    + ended: what stands in place of the summary of a check that somebody ended
    """
    ordered = answer.worst_first()
    blocks = screen.hosts((_shown(host, whole=whole) for host in ordered), apart=whole)
    if not whole:
        blocks += screen.remarks(("- ", host.name, note) for host in ordered for note in host.notes)
    reasons = [screen.line(reason, "! ") for reason in answer.reasons]
    blocks += [screen.BLANK, *reasons] if reasons else []
    blocks += [screen.BLANK, screen.line(ended or summary(answer))]
    return screen.printed(blocks, width, coloured=coloured)


def summary(answer: Answer) -> str:
    """Return the one line that says how many hosts have which verdict, and the exit code."""
    words = [WORDS[host.verdict] for host in answer.worst_first()]
    text = screen.counted(words, sum(host.rehearsal for host in answer.hosts))
    return f"{text}; {answer.seconds:.1f} s, exit code {answer.exit_code}"


def _shown(host: HostAnswer, *, whole: bool) -> screen.Shown:
    word, count = WORDS[host.verdict], len(host.deviations)
    state = word if host.verdict == "declared" else word.upper()
    state += f", {count} deviation{'s' if count != 1 else ''}" if count else ""
    return screen.Shown(
        name=host.name,
        state=state,
        style=_STYLES[host.verdict],
        rehearsal=host.rehearsal,
        rows=tuple(_rows(host, whole=whole)),
    )


def _rows(host: HostAnswer, *, whole: bool) -> Iterator[screen.Row]:
    if host.reason:
        yield screen.Row(label="because", text=host.reason)
    many = len(host.deviations) > _FEW and not whole
    for finding in host.deviations:
        style = _STYLES["restart" if finding.effect == "restart" else "drift"]
        if many and finding.acts:
            yield screen.Row(text=f"{finding.id}: {finding.found}", style=style)
        else:
            yield screen.Row(text=finding.id, style=style)
            yield from _about(finding)
    if many:
        yield screen.Row(text="for details: check -v")
    if whole:
        yield from (screen.Row(label="note", text=note) for note in host.notes)
        for stage in host.stages:
            if verdict_of(stage) == "declared" and (found := found_in(stage)):
                yield screen.Row(label=stage.stage, text=found)
    if number := len(host.not_checked):
        stages = f"{number} stage{'s' if number > 1 else ''}"
        yield screen.Row(label="not checked", text=f"{stages}: {', '.join(host.not_checked)}")


def _about(finding: Finding) -> Iterator[screen.Row]:
    yield screen.Row(label="found", text=finding.found, indent=4)
    yield screen.Row(label="expected", text=finding.expected, indent=4)
    if since := finding.since:
        text = f"{screen.VARIES}: {since}"
        yield screen.Row(label="since", text=text, varies=since.moment, indent=4)
    yield screen.Row(label="next deploy", text=finding.next_run, indent=4)
    if finding.command:
        yield screen.Row(label="command", text=finding.command, indent=4)
