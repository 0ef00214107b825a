"""The verb `explain` of the command line."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import click

from pyinfra_gpu.diagnosis.bundled import catalogue
from pyinfra_gpu.diagnosis.matcher import explain
from pyinfra_gpu.diagnosis.reading import Log, UnreadableError, read_log
from pyinfra_gpu.diagnosis.render import render
from pyinfra_gpu.on_host.diagnosis.entries import Kind
from pyinfra_gpu.output import show
from pyinfra_gpu.text import draws

EXPLAINED, MISTAKE, UNCLASSIFIED = 0, 1, 2


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``explain``."""
    parser = subparsers.add_parser(
        "explain",
        help="say why a run failed, from its log",
        description="Read the log of a failed run (torchrun's output, a rank's log, the kernel's"
        " log, an installer's output) and say what failed, why, and what to do.",
        epilog="exit code: 0 explained; 2 nothing known explains it; 1 the log could not be read.",
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="-", help="the log; standard input without it"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(handler=handle)


def handle(options: argparse.Namespace) -> int:
    """Explain the log, print the answer, and return the exit code."""
    try:
        log = _log(options.file)
    except (UnreadableError, OSError) as error:
        name = "standard input" if options.file == "-" else options.file
        reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else error
        print(f"pyinfra-gpu explain: {name} {reason}", file=sys.stderr)
        return MISTAKE
    if log.note:
        print(f"about this log: {log.note}", file=sys.stderr)
    diagnosis = explain(log.text)
    if options.json:
        answer = json.dumps(
            diagnosis.as_json() | ({"unread": log.unread} if log.unread else {}), indent=2
        )
    else:
        style = _colour if draws(sys.stdout) else lambda text, kind: text
        answer = render(diagnosis, catalogue(), style, unread=log.unread)
    return show(answer, "explain") or (UNCLASSIFIED if diagnosis.unclassified else EXPLAINED)


def _log(name: str) -> Log:
    if name != "-":
        with Path(name).open("rb") as file:
            return read_log(file)
    if sys.stdin is None:
        raise UnreadableError("is closed: name the log's FILE")
    if sys.stdin.isatty():
        print("paste the log here, then press Ctrl-D on a line of its own:", file=sys.stderr)
    return read_log(sys.stdin.buffer)


def _colour(text: str, kind: Kind) -> str:
    return click.style(text, fg="red" if kind == "root" else "yellow", bold=True)
