"""The verb `check` of the command line, and what it shares with `report`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from getpass import getpass

import click

from pyinfra_gpu.host_names import brief
from pyinfra_gpu.output import show
from pyinfra_gpu.report.check import past
from pyinfra_gpu.report.check.answer import Answer, HostAnswer, Verdict
from pyinfra_gpu.report.check.render import plain, render
from pyinfra_gpu.report.check.running import Request, run
from pyinfra_gpu.text import WIDTH, shortened

EXIT_CODES_TEXT = (
    "exit code: 0 every host is as declared; 2 drift; 3 only a restart is owed;"
    " 1 something could not be told (a host unreachable, the inventory wrong)."
    " 1 comes before 2, 2 before 3."
)
_COLOURS: dict[Verdict, str] = {
    "declared": "green",
    "restart": "cyan",
    "drift": "yellow",
    "unknown": "red",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``check``."""
    parser = subparsers.add_parser(
        "check",
        help="say whether every host is still as declared, and what is not; changes nothing",
        description="Look at every host, read-only, and say what is not as declared: what was"
        " found, what was expected, since when, and what the next deploy would do about it.",
        epilog=EXIT_CODES_TEXT,
    )
    add_request(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="show each host by itself, also what is as declared",
    )
    parser.set_defaults(handler=handle)


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say which hosts to look at."""
    parser.add_argument("inventory", metavar="INVENTORY", help="such as inventories/lab.py")
    for option, text in (
        ("--limit", "only these hosts: a name, group or pattern"),
        ("--exclude", "not these hosts: a name, group or pattern"),
    ):
        parser.add_argument(
            option, metavar="PATTERN", action="append", default=[], help=f"{text}; repeatable"
        )
    parser.add_argument(
        "--data", metavar="KEY=VALUE", action="append", default=[], help="as pyinfra's; repeatable"
    )
    parser.add_argument(
        "--same-sudo-password", action="store_true", help="ask once for the hosts' sudo password"
    )


def request_of(options: argparse.Namespace) -> Request:
    """Return what `add_request` let a person say, having asked for a password where that was."""
    return Request(
        inventory=options.inventory,
        limit=tuple(options.limit),
        exclude=tuple(options.exclude),
        data=tuple(options.data),
        sudo_password=getpass("sudo password: ") if options.same_sudo_password else None,
    )


def handle(options: argparse.Namespace) -> int:
    """Check, print the answer, and return the exit code; ended early, print what there is."""
    style = _colour if sys.stdout.isatty() else plain
    arrivals = _Arrivals()
    try:
        answer = look(request_of(options), arrivals)
    except SystemExit:
        if arrivals.hosts and not options.json:
            some = Answer(
                inventory=options.inventory, checked="", seconds=0, hosts=tuple(arrivals.hosts)
            )
            show(render(some, style, whole=options.verbose, ended=True), "check")
        raise
    keep(answer)
    if options.json:
        text = json.dumps(answer.as_json(), indent=2, sort_keys=True)
    else:
        text = render(answer, style, whole=options.verbose)
    return show(text, "check") or answer.exit_code


def look(request: Request, arrivals: _Arrivals | None = None) -> Answer:
    """Run a check, with a line of progress on a terminal.

    + arrivals: gets each host's answer as it comes
    """
    return run(request, (arrivals or _Arrivals()).add)


class _Arrivals:
    """The answers so far; on a terminal a line says how many, and which hosts are waited for."""

    def __init__(self) -> None:
        self.hosts: list[HostAnswer] = []

    def add(self, host: HostAnswer, names: Sequence[str]) -> None:
        """Keep an answer, and show the line anew, or clear it when the last host has answered."""
        self.hosts.append(host)
        if not sys.stderr.isatty():
            return
        waiting = {*names} - {each.name for each in self.hosts}
        done = f"{len(self.hosts)} of {len(names)} hosts have answered, not yet {brief(waiting)}"
        shown = shortened(done, WIDTH - 1) if waiting else ""
        print(f"\r\x1b[K{shown}", end="", file=sys.stderr, flush=True)


def keep(answer: Answer) -> None:
    """Keep the verdicts for later reports; where that fails, the answer still stands."""
    try:
        past.remember(answer, past.file_for(answer.inventory))
    except OSError as error:
        print(f"this check is not kept for later reports: {error}", file=sys.stderr)


def _colour(text: str, verdict: Verdict) -> str:
    return click.style(text, fg=_COLOURS[verdict], bold=verdict != "declared")
