"""The verb `train`: passes words to the hosts' launchers and shows what they say."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gevent.hub import Hub  # type: ignore[import-untyped]  # it has none

from pyinfra_gpu.completion import is_asked, offer
from pyinfra_gpu.output import show
from pyinfra_gpu.report.check.cli import add_request, request_of, typed
from pyinfra_gpu.report.check.running import known
from pyinfra_gpu.report.train.answer import TrainAnswer, printed, render
from pyinfra_gpu.report.train.asking import LISTS, ask_all, lead
from pyinfra_gpu.text import columns, draws, some

VERBS = ("start", "try", "list", "watch", "stop", "resume", "logs", "why", "presets")
EXIT_CODES_TEXT = (
    "exit code: 0 well; 1 a host's launcher refused, or something could not be told; 2 a run"
    " failed, is stalled or has a NaN or infinite loss, or a usage error. 1 takes"
    " precedence over 2."
)
_ACROSS = ("start", "stop", "resume")
_ALL = (*_ACROSS, "try")
_MISTAKE, _INTERRUPTED = 2, 130
_WATCH_EVERY_S = 5.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``train``."""
    parser = subparsers.add_parser(
        "train",
        help="start, follow, stop, resume and explain training runs on the hosts",
        description="Run the launcher on every host at once and show what each answers. Words that"
        " are not among these options go to the launcher unchanged.",
        usage="%(prog)s INVENTORY [options] [--] ACTION [NAME] [launcher's options] [-- ARGS]",
        epilog=EXIT_CODES_TEXT,
        allow_abbrev=False,
    )
    add_request(parser)
    add = parser.add_argument
    add("action", choices=VERBS, metavar="ACTION", help=", ".join(VERBS))
    add("--json", action="store_true", help="print one JSON document")
    text = f"{', '.join(_ACROSS)}: one run of all hosts of a group"
    offer(add("--across", metavar="GROUP", help=text), lambda words: known(typed(words))[0])
    if is_asked():
        offer(add("name", nargs="?"), _presets)
    add("--all", action="store_true", help=f"{', '.join(_ALL)}: on all hosts")
    parser.set_defaults(handler=handle, words=[])


def _presets(words: argparse.Namespace) -> list[str]:
    """Return the presets that the hosts declare, where one is to be started."""
    hosts = known(typed(words))[1].values() if words.action == "start" else ()
    declared = (data.get("training_presets") for data in hosts)
    return [*dict.fromkeys(name for each in declared if isinstance(each, Mapping) for name in each)]


def parsed(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Parse `train INVENTORY ...`; a mistake ends with 2, as on the host."""
    at = words.index("--") if "--" in words else len(words)
    own, others = [*words[:at]], [*words[at + 1 :]]
    if others and others[0] in VERBS and not {*VERBS} & {*own[1:]}:
        own.append(others.pop(0))  # the action stands behind the dashes
    try:
        options, further = parser.parse_known_args(own)
    except SystemExit as ended:
        raise SystemExit(_MISTAKE if ended.code else 0) from None
    options.words = [*further, *others]
    if text := _mistake(options):
        _tell(f"pyinfra-gpu train: {text}")
        raise SystemExit(_MISTAKE)
    return options


def _mistake(options: argparse.Namespace) -> str | None:
    """Return what cannot be meant, by the words alone or by the hosts that there are."""
    action, across = options.action, options.across
    if action == "logs" and {"-f", "--follow"} & {*options.words}:
        return "logs are followed on their host: run `train logs -f` there"
    if across is not None and (action not in _ACROSS or options.limit):
        return f"--across is for {', '.join(_ACROSS)}, and names all hosts: leave out --limit"
    unnamed = action in _ALL and not (options.limit or across or options.all)
    if unnamed and len(hosts := known(typed(options))[1]) > 1:
        return f"{action} on {some([*hosts], 3)}? Say which with --limit, or give --all"
    return None


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def handle(options: argparse.Namespace) -> int:
    """Ask the hosts, and return the exit code; Ctrl-C says that what is on goes on."""
    if KeyboardInterrupt not in Hub.NOT_ERROR:
        Hub.NOT_ERROR = (*Hub.NOT_ERROR, KeyboardInterrupt)  # else gevent prints a traceback
    try:
        return _handled(options)
    except KeyboardInterrupt:
        _tell(f"\nruns continue: `pyinfra-gpu train {options.inventory} list` shows them")
        return 0 if options.action == "watch" else _INTERRUPTED


def _handled(options: argparse.Namespace) -> int:
    request, action, words = request_of(options), options.action, options.words
    if options.across is not None:
        request = replace(request, limit=(options.across,))
        if action in ("start", "resume"):
            return _shown(lead(request, action, words), options)
        words = ["--across", *words]
    while True:
        code = _shown(answer := ask_all(request, action, words), options)
        on = any(run.on for host in answer.hosts for run in host.runs)
        if action != "watch" or options.json or not on:
            return code
        time.sleep(_WATCH_EVERY_S)


def _shown(answer: TrainAnswer, options: argparse.Namespace) -> int:
    text = json.dumps(answer.as_json(), indent=2, sort_keys=True)
    if not options.json:
        lists = options.action in LISTS
        clear = "\x1b[H\x1b[2J" if options.action == "watch" and draws(sys.stdout) else ""
        text = clear + (render(answer, columns()) if lists else printed(answer))
    return show(text, "train") or answer.exit_code
