"""The verb `check` of the command line, and what it shares with `report`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from getpass import getpass

import click

from pyinfra_gpu.on_host.completion import offer
from pyinfra_gpu.output import show
from pyinfra_gpu.report.check import offering, past
from pyinfra_gpu.report.check.answer import Answer, HostAnswer, Verdict
from pyinfra_gpu.report.check.arrivals import Arrivals
from pyinfra_gpu.report.check.render import last_lines, lines_of, plain
from pyinfra_gpu.report.check.running import Request, run
from pyinfra_gpu.text import draws

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
        chosen = parser.add_argument(
            option, metavar="PATTERN", action="append", default=[], help=f"{text}; repeatable"
        )
        offer(chosen, offering.hosts)
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
    """Check, print the answer, and return the exit code; ended early, print what there is.

    What has come is printed while others are waited for, but as JSON, which is one document.
    """
    printing = _Printing(whole=options.verbose)
    arrivals = Arrivals(None if options.json else printing.some)
    try:
        answer = look(request_of(options), arrivals)
    except SystemExit:
        if arrivals.hosts and not options.json:
            printing.end(None, arrivals.rest, len(arrivals.hosts))
        raise
    keep(answer)
    if options.json:
        text = json.dumps(answer.as_json(), indent=2, sort_keys=True)
        return show(text, "check") or answer.exit_code
    printing.end(answer, arrivals.rest, len(answer.hosts))
    return printing.failed or answer.exit_code


def look(request: Request, arrivals: Arrivals | None = None) -> Answer:
    """Run a check, with a line of progress on a terminal.

    + arrivals: gets each host's answer as it comes
    """
    return run(request, (arrivals or Arrivals()).add)


class _Printing:
    """Prints answers to standard output, in as many parts as they come in."""

    def __init__(self, *, whole: bool) -> None:
        self.failed = 0
        self._whole = whole
        self._style = _colour if draws(sys.stdout) else plain
        self._begun = False

    def some(self, hosts: Sequence[HostAnswer], total: int) -> None:
        """Print the answers of some hosts, of so many in all."""
        self._print(lines_of(hosts, total, self._style, whole=self._whole))

    def end(self, answer: Answer | None, rest: Sequence[HostAnswer], total: int) -> None:
        """Print what was not yet, and the line that sums up; None: others have not answered."""
        if rest:
            self.some(rest, total)
        self._print(last_lines(answer))

    def _print(self, lines: Sequence[str]) -> None:
        text = "\n".join(["", *lines] if self._begun else lines)
        self._begun = True
        self.failed = show(text, "check") or self.failed


def keep(answer: Answer) -> None:
    """Keep the verdicts for later reports; where that fails, the answer still stands."""
    try:
        past.remember(answer, past.file_for(answer.inventory))
    except OSError as error:
        print(f"this check is not kept for later reports: {error}", file=sys.stderr)


def _colour(text: str, verdict: Verdict) -> str:
    return click.style(text, fg=_COLOURS[verdict], bold=verdict != "declared")
