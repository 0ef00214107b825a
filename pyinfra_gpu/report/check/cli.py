"""The verb `check` of the command line, and what it shares with `report`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from getpass import getpass

import click

from pyinfra_gpu.output import show
from pyinfra_gpu.report.check import past
from pyinfra_gpu.report.check.answer import Answer, HostAnswer, Verdict
from pyinfra_gpu.report.check.render import Style, closing, host_lines, width_for
from pyinfra_gpu.report.check.running import Arrived, Request, run

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
    """Check, print each host's answer as it comes, and return the exit code."""
    if options.json:
        answer = look(options)
        text = json.dumps(answer.as_json(), indent=2, sort_keys=True)
        keep(answer)
        return show(text, "check") or answer.exit_code
    shown = _Shown()
    answer = look(options, shown.host)
    keep(answer)
    shown.close(answer)
    return shown.failed or answer.exit_code


class _Shown:
    """What of the answer is on the terminal by now."""

    def __init__(self) -> None:
        self.failed = 0
        self._behind_text = False
        self._style: Style = _colour if sys.stdout.isatty() else lambda text, verdict: text

    def host(self, host: HostAnswer, done: int, names: Sequence[str]) -> None:
        """Show one host, as soon as it has answered."""
        del done
        labels = [f"{name} (rehearsal)" if host.rehearsal else name for name in names]
        lines = host_lines(host, width_for(labels), self._behind_text, self._style)
        self._behind_text = lines[-1] != ""
        self._show(lines)

    def close(self, answer: Answer) -> None:
        """Show what stands below the hosts."""
        self._show(closing(answer, self._behind_text))

    def _show(self, lines: list[str]) -> None:
        self.failed = self.failed or show("\n".join(lines), "check")


def look(options: argparse.Namespace, arrived: Arrived | None = None) -> Answer:
    """Run the check that the arguments ask for, with a line of progress on a terminal.

    + arrived: is told each host's answer as it comes
    """
    request = request_of(options)
    if not sys.stderr.isatty():
        return run(request, arrived)

    def told(host: HostAnswer, done: int, names: Sequence[str]) -> None:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        if arrived:
            arrived(host, done, names)
        if done < len(names):
            text = f"{done} of {len(names)} hosts have answered"
            print(text, end="", file=sys.stderr, flush=True)

    return run(request, told)


def keep(answer: Answer) -> None:
    """Keep the verdicts for later reports; where that fails, the answer still stands."""
    try:
        past.remember(answer, past.file_for(answer.inventory))
    except OSError as error:
        print(f"this check is not kept for later reports: {error}", file=sys.stderr)


def _colour(text: str, verdict: Verdict) -> str:
    return click.style(text, fg=_COLOURS[verdict], bold=verdict != "declared")
