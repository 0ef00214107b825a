"""The verb `train` of the command line."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from io import StringIO
from typing import NoReturn

import click
from gevent.hub import Hub  # type: ignore[import-untyped]  # it has none

from pyinfra_gpu.on_host import completion
from pyinfra_gpu.on_host.train import options as launcher
from pyinfra_gpu.on_host.train.calling import Caller
from pyinfra_gpu.on_host.train.offering import offer
from pyinfra_gpu.on_host.train.presets import nearest
from pyinfra_gpu.output import show
from pyinfra_gpu.report.check.cli import add_request, request_of
from pyinfra_gpu.report.check.running import Request, members
from pyinfra_gpu.report.train import offering
from pyinfra_gpu.report.train.across import lead
from pyinfra_gpu.report.train.answer import TrainAnswer
from pyinfra_gpu.report.train.asking import ask_all
from pyinfra_gpu.report.train.render import printed, render
from pyinfra_gpu.text import columns, draws, paragraph

VERBS = ("start", "list", "watch", "stop", "resume", "logs", "why")
_ACROSS = ("start", "stop", "resume")
_LISTS = ("list", "watch")
_VALUED = ("--limit", "--exclude", "--data", "--across")
_HOW = "pyinfra-gpu train INVENTORY ACTION"
MISTAKE = 2
INTERRUPTED = 130
EXIT_CODES_TEXT = (
    "exit code: 0 well; 1 a host's launcher refused, or something could not be told; 2 a run"
    " failed, stands still or has a loss that is no number, or a mistake on the command line."
    " 1 comes before 2."
)
_WATCH_EVERY_S = 5.0
_COLOURS = {
    "running": "green",
    "finished": "green",
    "failed": "red",
    "lost": "red",
    "damaged": "red",
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
        " they say. A name is a preset's or a run's; what stands behind -- goes to the launcher"
        " as it is.",
        usage="%(prog)s INVENTORY ACTION [NAME] [options] [-- ARGS]",
        epilog=EXIT_CODES_TEXT,
    )
    add_request(parser)
    parser.add_argument(
        "action", type=_action, choices=VERBS, metavar="ACTION", help=", ".join(VERBS)
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    across = parser.add_argument(
        "--across",
        metavar="GROUP",
        help="start, stop, resume: one run that all hosts of this group train together",
    )
    offer(across, offering.groups)
    if completion.is_asked():  # else what stands there is sorted out behind the parser
        offer(parser.add_argument("name", nargs="?"), offering.presets)
    parser.add_argument("--once", action="store_true", help="watch: show it once, and end")
    parser.set_defaults(handler=handle, words=[])


def _action(word: str) -> str:
    """Return an action; argparse tells of anything else."""
    if word not in VERBS:
        hint = nearest(word, VERBS, "actions are")
        raise argparse.ArgumentTypeError(f"there is no action {word!r:.80}: {hint}")
    return word


def parsed(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line of `train`; a mistake in it ends the program with 2.

    That is what the launcher on a host ends with, too.
    """
    ours, theirs = _split(words)
    _refuse_half(ours[1:])
    try:
        options, further = parser.parse_known_args(ours)
    except SystemExit as ended:
        raise SystemExit(MISTAKE if ended.code else 0) from None
    options.words = [*further, *theirs]
    if options.action == "logs" and {"-f", "--follow"} & {*options.words}:
        _refuse("logs are followed on their host: run `train logs -f` there")
    if any(word.startswith("-") for word in further):
        _refuse(_misplaced(options.action, ours, further, theirs))
    if len(further) > 1 and options.action not in _LISTS:
        _refuse(_one_at_a_time(options.action, further))
    if options.across is not None and options.action not in _ACROSS:
        verbs = f"{', '.join(_ACROSS[:-1])} and {_ACROSS[-1]}"
        text = f"--across is for {verbs}, not for {options.action}"
        _refuse(f"{text}: give --limit {options.across}")
    if options.across is not None and options.limit:
        _refuse("--across names all hosts of the run: leave out --limit")
    launcher.parse([_theirs(options.action), *_as_told(options)])
    return options


def _theirs(action: str) -> str:
    """Return the launcher's command for an action."""
    return "list" if action == "watch" else action


def _misplaced(
    action: str, ours: Sequence[str], further: Sequence[str], theirs: Sequence[str]
) -> str:
    """Say of options that are not ours how they are typed: whole, with all that was typed.

    + ours: the words before `--`, and further: those among them that are not ours
    """
    unknown = next(word for word in further if word.startswith("-"))
    left = [*further]
    known = [word for word in ours[1:] if not (left and word == left[0] and left.pop(0))]
    begin = ["pyinfra-gpu", "train", *known, "--"]
    # Behind the `--` of a start that is typed as on the host stands what is for the program.
    behind = ["--", *theirs] if theirs else []
    for words, hint in (
        ([*further, *theirs], "what is for the launcher goes behind --"),
        ([*further, *behind], "what is for the launcher goes behind --"),
        ([*_as_settings(further), *behind], "an argument of the preset is given by --set"),
    ):
        if _takes(action, words):
            return f"there is no option {unknown}: {hint}: `{shlex.join([*begin, *words])}`"
    return f"there is no option {unknown}, nor has the launcher it: see `{_HOW} --help`"


def _takes(action: str, words: Sequence[str]) -> bool:
    """Tell whether the launcher takes a command line."""
    with redirect_stderr(StringIO()):
        try:
            launcher.parse([_theirs(action), *words])
        except SystemExit:
            return False
    return True


def _as_settings(words: Sequence[str]) -> list[str]:
    """Return words with each `--name value` and `--name=value` as the launcher's --set."""
    found: list[str] = []
    values = iter([*words, ""])
    for word in values:
        name, equals, value = word.partition("=")
        value = value if equals or not word.startswith("--") else next(values)
        if word.startswith("--") and value:
            found += ["--set", f"{name[2:]}={value}"]
        elif word:
            found.append(word)
    return found


def _refuse_half(words: Sequence[str]) -> None:
    """Refuse a command line without an inventory or an action, in words of what is missing."""
    if {"-h", "--help"} & {*words}:
        return
    valued = [place for place, word in enumerate(words) if word in _VALUED]
    plain = [
        word
        for place, word in enumerate(words)
        if not word.startswith("-") and place - 1 not in valued
    ]
    known = f"the actions are {', '.join(VERBS)}"
    if not plain:
        _refuse(f"give an inventory and an action: `{_HOW}`; {known}")
    if plain[0] in VERBS and (len(plain) == 1 or plain[1] not in VERBS):
        typed = shlex.join(["pyinfra-gpu", "train", "INVENTORY", *words])
        _refuse(f"give the inventory first: `{typed}`")
    if len(plain) == 1:
        _refuse(f"say what the hosts of {plain[0]} are to do: {known}")


def _one_at_a_time(action: str, named: Sequence[str]) -> str:
    what = "preset" if action == "start" else "run"
    usage = f"pyinfra-gpu train INVENTORY {action} [{what.upper()}] [options] [-- ARGS]"
    return f"one {what} at a time, and not {' and '.join(named)}: `{usage}`"


def _as_told(options: argparse.Namespace) -> list[str]:
    """Return the words that its own parser is to understand, before any host is asked."""
    named = [word for word in options.words if not word.startswith("-")]
    if options.action in _LISTS and named:
        _refuse(f"{options.action} shows the runs of all hosts: leave out {named[0]}")
    return list(options.words)


def _refuse(text: str) -> NoReturn:
    text = f"pyinfra-gpu train: {text}"
    lines = paragraph(text, "", "  ", width=columns()) if sys.stderr.isatty() else [text]
    print("\n".join(lines), file=sys.stderr)
    raise SystemExit(MISTAKE)


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of the command line before the first ``--``, and those behind it."""
    at = words.index("--") if "--" in words else len(words)
    return list(words[:at]), list(words[at + 1 :])


def handle(options: argparse.Namespace) -> int:
    """Ask the hosts, print what they say, and return the exit code."""
    # Who presses Ctrl-C knows it; gevent would tell of it as of an error.
    if KeyboardInterrupt not in Hub.NOT_ERROR:
        Hub.NOT_ERROR = (*Hub.NOT_ERROR, KeyboardInterrupt)
    try:
        return _handled(options)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        if options.action == "watch":
            _tell(f"the runs go on: `{_typed(options, 'watch')}` shows them again")
            return 0
        if options.action not in ("start", "resume"):
            raise
        seen = f"`{_typed(options, 'list')}` shows what"
        _tell(f"interrupted; what was started already goes on: {seen}")
        return INTERRUPTED


def _tell(text: str) -> None:
    lines = paragraph(text, "", "  ", width=columns())
    print("\n".join(lines), file=sys.stderr, flush=True)


def _typed(options: argparse.Namespace, verb: str) -> str:
    limits = [options.across] if options.across is not None else options.limit or []
    given = (("--limit", limits), ("--exclude", options.exclude), ("--data", options.data))
    chosen = tuple(word for name, values in given for value in values for word in (name, value))
    return Caller(inventory=options.inventory, chosen=chosen).typed([verb])


def _handled(options: argparse.Namespace) -> int:
    request = request_of(options)
    if options.across is not None:
        request = replace(request, limit=(options.across,))
        if options.action in ("start", "resume"):
            answer = lead(request, options.action, options.words)
            return _shown(answer, options) or answer.exit_code
        names = members(request, options.across, "--across")
        if isinstance(names, str):
            answer = TrainAnswer(inventory=request.inventory, reasons=(names,))
            return _shown(answer, options) or answer.exit_code
        options.words = ["--across", *options.words]
    again = options.action == "watch" and not (options.once or options.json)
    if again:
        _tell(_asked(request))
    while True:
        answer = ask_all(request, options.action, options.words, options.across or "")
        code = _shown(answer, options) or answer.exit_code
        if not again or not _is_on(answer):
            return code
        time.sleep(_WATCH_EVERY_S)


def _asked(request: Request) -> str:
    """Say who is asked: until the first table an SSH connection may take seconds."""
    whom = f" --limit {' --limit '.join(request.limit)}" if request.limit else ""
    return f"asking the hosts of {request.inventory}{whom} ..."


def _is_on(answer: TrainAnswer) -> bool:
    """Tell whether there is anything to wait for."""
    return any(run.on for host in answer.hosts for run in host.runs)


def _shown(answer: TrainAnswer, options: argparse.Namespace) -> int:
    if options.json:
        return show(json.dumps(answer.as_json(), indent=2, sort_keys=True), "train")
    if options.action not in ("list", "watch"):
        return show(printed(answer, columns()), "train")
    drawn = draws(sys.stdout)
    text = render(answer, _colour, columns()) if drawn else render(answer, width=columns())
    clear = "\x1b[H\x1b[2J" if drawn and options.action == "watch" and not options.once else ""
    return show(clear + text, "train")


def _colour(text: str, word: str) -> str:
    return click.style(text, fg=_COLOURS.get(word))
