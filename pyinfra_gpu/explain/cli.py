"""The verb `explain` of the command line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyinfra_gpu.diagnosis.catalogue import catalogue
from pyinfra_gpu.diagnosis.reading import Log, UnreadableError, read_log
from pyinfra_gpu.on_host.diagnosis import writing
from pyinfra_gpu.on_host.diagnosis.explain import explain
from pyinfra_gpu.output import show
from pyinfra_gpu.text import draws

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.engine.look import Unanswered
    from pyinfra_gpu.facts.record import Record

EXPLAINED, MISTAKE, UNEXPLAINED = 0, 1, 2
_STDIN = "standard input"


class _MistakeError(Exception):
    """What was typed cannot be done; the message is a sentence."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``explain``."""
    parser = subparsers.add_parser(
        "explain",
        help="explain why a run failed, from its log and its host",
        usage="pyinfra-gpu explain [--json] [LOG ...] [INVENTORY --limit HOST]",
        description="Read the logs of a failed run (torchrun's output, a rank's log, the kernel's"
        " log, an installer's output) and say what failed, why, and what to do. With an inventory,"
        " look at the run's host as well (read-only), and decide by what it shows.",
        epilog="exit code: 0 explained; 2 nothing known explains it; 1 a log could not be read.",
    )
    parser.add_argument(
        "words",
        metavar="LOG",
        nargs="*",
        help="a log; - or none: standard input. The last word is the INVENTORY if it ends with .py"
        " or --limit is given",
    )
    parser.add_argument(
        "--limit", metavar="HOST", help="the host of the inventory on which the run failed"
    )
    parser.add_argument(
        "--same-sudo-password", action="store_true", help="ask for the host's sudo password"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(handler=handle)


def handle(options: argparse.Namespace) -> int:
    """Explain the logs, print the answer, and return the exit code."""
    names, inventory = _sorted(options.words, options.limit)
    try:
        logs = {_STDIN if name == "-" else name: _log(name) for name in names or ["-"]}
        facts = _facts(inventory, options) if inventory else None
    except _MistakeError as error:
        print(f"pyinfra-gpu explain: {error}", file=sys.stderr)
        return MISTAKE
    answer = explain({name: log.text for name, log in logs.items()}, catalogue(), facts)
    unread = {name: log.unread for name, log in logs.items() if log.unread}
    if options.json:
        text = json.dumps({**answer.as_json(), "unread": unread}, indent=2)
    else:
        shown = writing.lines(answer, colour=draws(sys.stdout))
        notes = [f"{name}: {what}" for name, what in unread.items()]
        text = "\n".join([*shown, *([""] if notes else []), *notes])
    return show(text, "explain") or (EXPLAINED if answer.found else UNEXPLAINED)


def _sorted(words: Sequence[str], limit: str | None) -> tuple[Sequence[str], str]:
    """Return the names of the logs, and the inventory; empty where none is given."""
    if words and (limit or words[-1].endswith(".py")):
        return words[:-1], words[-1]
    return words, ""


def _log(name: str) -> Log:
    try:
        if name != "-":
            with Path(name).open("rb") as file:
                return read_log(file)
        if sys.stdin is None:
            raise _MistakeError(f"{_STDIN} is closed: name a LOG")
        if sys.stdin.isatty():
            print("paste the log here, then press Ctrl-D on a line of its own:", file=sys.stderr)
        return read_log(sys.stdin.buffer)
    except UnreadableError as error:
        raise _MistakeError(f"{_STDIN if name == '-' else name} {error}") from None
    except OSError as error:
        raise _MistakeError(f"{name} cannot be read: {error.strerror}") from None


def _facts(inventory: str, options: argparse.Namespace) -> dict[str, str] | None:
    """Look at the host once; None, and why on standard error, where it does not answer."""
    from getpass import getpass

    from pyinfra_gpu.diagnosis.host_facts import facts_of
    from pyinfra_gpu.engine.look import Unanswered
    from pyinfra_gpu.report.check.running import Request, known, visit

    password = getpass("sudo password: ") if options.same_sudo_password else None
    limit = (options.limit,) if options.limit else ()
    request = Request(inventory=inventory, limit=limit, sudo_password=password)
    hosts = [*known(request)[1]]
    if len(hosts) > 1:
        example = f"such as --limit {hosts[0]}"
        raise _MistakeError(f"{inventory} has {len(hosts)} hosts: name one with --limit, {example}")
    seen: list[Record | Unanswered] = []
    _, reasons = visit(request, _look, lambda found, names: seen.append(found))
    if reasons or not seen:
        raise _MistakeError("; ".join(reasons) or f"{inventory} has no such host")
    if isinstance(seen[0], Unanswered):
        print(f"{hosts[0]} {seen[0].reason}; this is explained by the log alone", file=sys.stderr)
        return None
    return facts_of(seen[0])


def _look(state: State, host: Host) -> Record | Unanswered:
    from pyinfra.context import ctx_host

    from pyinfra_gpu.engine.declared import declared
    from pyinfra_gpu.engine.look import Unanswered, answer

    try:
        with ctx_host.use(host):
            return answer(state, host, declared(host))
    except Exception as error:  # as with every look at hosts: it is one host's answer
        return Unanswered(reason=f"could not be looked at ({type(error).__name__}: {error})")
