"""The verb `train` of the command line."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import click

from pyinfra_gpu.output import show
from pyinfra_gpu.report.check.cli import add_request, request_of
from pyinfra_gpu.report.train.across import start_across
from pyinfra_gpu.report.train.answer import TrainAnswer
from pyinfra_gpu.report.train.asking import ask_all
from pyinfra_gpu.report.train.render import printed, render

VERBS = ("start", "list", "watch", "stop", "resume", "logs", "why")
EXIT_CODES_TEXT = (
    "exit code: 0 well; 2 a run failed, stands still or has a loss that is no number, or a host's"
    " launcher refused; 1 something could not be told. 1 comes before 2."
)
_WATCH_EVERY_S = 5.0
_COLOURS = {
    "running": "green",
    "finished": "green",
    "failed": "red",
    "lost": "red",
    "stalled": "red",
    "queued": "yellow",
    "stopped": "yellow",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``train``."""
    parser = subparsers.add_parser(
        "train",
        help="start, follow, stop, resume and explain training runs on the hosts",
        description="Have the launcher of every host do something, all at once, and show what"
        " they say. What stands behind -- goes to the launcher as it is, such as the preset.",
        usage="%(prog)s INVENTORY ACTION [options] [-- ARGS]",
        epilog=EXIT_CODES_TEXT,
    )
    add_request(parser)
    parser.add_argument("action", choices=VERBS, metavar="ACTION", help=", ".join(VERBS))
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--across",
        metavar="GROUP",
        help="start, stop: one run that all hosts of this group train together",
    )
    parser.add_argument("--once", action="store_true", help="watch: show it once, and end")
    parser.set_defaults(handler=handle, words=[])


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of the command line before the first ``--``, and those behind it."""
    at = words.index("--") if "--" in words else len(words)
    return list(words[:at]), list(words[at + 1 :])


def handle(options: argparse.Namespace) -> int:
    """Ask the hosts, print what they say, and return the exit code."""
    request = request_of(options)
    if any(word in ("-f", "--follow") for word in options.words):
        text = "pyinfra-gpu train: logs are followed on their host: run `train logs -f` there"
        print(text, file=sys.stderr)
        return 1
    if options.across is not None:
        if options.action not in ("start", "stop"):
            text = f"pyinfra-gpu train: --across is for start and stop, not for {options.action}"
            print(f"{text}: give --limit {options.across}", file=sys.stderr)
            return 1
        if options.limit:
            text = "pyinfra-gpu train: --across names all hosts of the run: leave out --limit"
            print(text, file=sys.stderr)
            return 1
        request = replace(request, limit=(options.across,))
        if options.action == "start":
            answer = start_across(request, options.words)
            return _shown(answer, options) or answer.exit_code
        options.words = ["--across", *options.words]
    again = options.action == "watch" and not (options.once or options.json)
    while True:
        answer = ask_all(request, options.action, options.words)
        code = _shown(answer, options) or answer.exit_code
        if not again or not _is_on(answer):
            return code
        time.sleep(_WATCH_EVERY_S)


def _is_on(answer: TrainAnswer) -> bool:
    """Tell whether there is anything to wait for."""
    return any(run.on for host in answer.hosts for run in host.runs)


def _shown(answer: TrainAnswer, options: argparse.Namespace) -> int:
    terminal = sys.stdout.isatty()
    if options.json:
        return show(json.dumps(answer.as_json(), indent=2, sort_keys=True), "train")
    if options.action not in ("list", "watch"):
        return show(printed(answer), "train")
    text = render(answer, _colour) if terminal else render(answer)
    clear = "\x1b[H\x1b[2J" if terminal and options.action == "watch" and not options.once else ""
    return show(clear + text, "train")


def _colour(text: str, word: str) -> str:
    return click.style(text, fg=_COLOURS.get(word))
