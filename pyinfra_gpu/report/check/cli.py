"""The verb `check` of the command line, and what it shares with `report`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from getpass import getpass

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from rich.console import Console, RenderableType
from rich.live import Live

from pyinfra_gpu.completion import offer
from pyinfra_gpu.host_names import brief
from pyinfra_gpu.output import show
from pyinfra_gpu.report.check import offering, past
from pyinfra_gpu.report.check.answer import Answer, HostAnswer
from pyinfra_gpu.report.check.render import blocks_of, last_blocks
from pyinfra_gpu.report.check.running import Request, run
from pyinfra_gpu.report.screen import BLANK, printed, safe
from pyinfra_gpu.text import columns, draws, shortened

EXIT_CODES_TEXT = (
    "exit code: 0 every host is as declared; 2 drift; 3 only a restart is pending;"
    " 1 something could not be told (a host unreachable, the inventory wrong)."
    " 1 comes before 2, 2 before 3."
)
TOGETHER_S = 2.0
"""Seconds that an answer waits for others, so that hosts with the same are shown as one."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``check``."""
    parser = subparsers.add_parser(
        "check",
        help="say whether every host is still as declared, and what is not; changes nothing",
        description="Probe every host, read-only, and say what is not as declared: what was"
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
    """Add the arguments that say which hosts are meant."""
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

    What has come is printed while others are waited for; JSON is one document at the end.
    """
    answers = Answers(None if options.json else options.verbose)
    try:
        answer = look(request_of(options), answers)
    except SystemExit:
        if answers.hosts and not options.json:
            answers.end(None)
        raise
    keep(answer)
    if options.json:
        text = json.dumps(answer.as_json(), indent=2, sort_keys=True)
        return show(text, "check") or answer.exit_code
    answers.end(answer)
    return answers.failed or answer.exit_code


def look(request: Request, answers: Answers | None = None) -> Answer:
    """Run a check; on a terminal a line says which hosts are waited for.

    + answers: gets each host's answer as it comes
    """
    answers = answers or Answers(None)
    try:
        return run(request, answers.add)
    finally:
        answers.stop()


class Answers:
    """The answers so far, printed in as few parts as they come in.

    + whole: show each host by itself; None where they are only counted
    + failed: the exit code of printing, 0 where it went well
    """

    def __init__(self, whole: bool | None) -> None:
        self.hosts: list[HostAnswer] = []
        self.failed = 0
        self._whole = whole
        self._done = self._total = 0
        self._timer: gevent.Greenlet | None = None
        # Without a thread that draws it again: it would not know of gevent's.
        self._line = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
        self._begun = False

    def add(self, host: HostAnswer, names: Sequence[str]) -> None:
        """Take in an answer."""
        self.hosts.append(host)
        self._total = len(names)
        waiting = {*names} - {each.name for each in self.hosts}
        if not waiting:
            self.stop()
            return
        text = f"{len(self.hosts)} of {len(names)} hosts have answered, not yet {brief(waiting)}"
        self._line.start()
        self._line.update(safe(shortened(text, columns() - 1)), refresh=True)
        if self._whole is not None and self._timer is None:
            self._timer = gevent.spawn_later(TOGETHER_S, self._some)

    def stop(self) -> None:
        """Take the line away, and print nothing more by itself."""
        self._line.stop()
        if self._timer is not None:
            self._timer.kill(block=False)

    def end(self, answer: Answer | None) -> None:
        """Print what was not yet, and the summary; None: others have not answered."""
        if len(self.hosts) > self._done:
            self._some(last=True)
        self._print(last_blocks(answer))

    def _some(self, *, last: bool = False) -> None:
        """Print the answers that were not yet; the line of those that are waited for is below."""
        self._timer = None
        came, self._done = self.hosts[self._done :], len(self.hosts)
        self._line.stop()
        self._print(blocks_of(came, self._total, whole=bool(self._whole)))
        if not last:
            self._line.start(refresh=True)

    def _print(self, blocks: list[RenderableType]) -> None:
        text = printed(
            [*([BLANK] if self._begun else []), *blocks], columns(), coloured=draws(sys.stdout)
        )
        self._begun = True
        self.failed = show(text, "check") or self.failed


def keep(answer: Answer) -> None:
    """Keep the verdicts for later reports; where that fails, the answer still stands."""
    try:
        past.remember(answer, past.file_for(answer.inventory))
    except OSError as error:
        print(f"this check is not kept for later reports: {error}", file=sys.stderr)
