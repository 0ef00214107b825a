"""The verb `train`: passes words to the hosts' launchers and shows what they say."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import click
from gevent.hub import Hub  # type: ignore[import-untyped]  # it has none

from pyinfra_gpu.on_host.train import cli as launcher
from pyinfra_gpu.output import show
from pyinfra_gpu.report.check.cli import known_of, of_hosts
from pyinfra_gpu.report.check.running import Request, known, members
from pyinfra_gpu.report.train.across import lead
from pyinfra_gpu.report.train.answer import TrainAnswer
from pyinfra_gpu.report.train.asking import LISTS, ask_all
from pyinfra_gpu.report.train.render import printed, render
from pyinfra_gpu.text import columns, draws, some

VERBS = ("start", "try", "list", "watch", "stop", "resume", "logs", "why", "presets")
EXIT_CODES_TEXT = (
    "exit code: 0 well; 1 a host's launcher refused, or something could not be told; 2 a run"
    " failed, is stalled or has a NaN or infinite loss, or a usage error. 1 takes"
    " precedence over 2."
)
_ACROSS = ("start", "stop", "resume")
_ALL = (*_ACROSS, "try")
_INTERRUPTED = 130
_WATCH_EVERY_S = 5.0
_COLOURS = {
    **dict.fromkeys(("running", "finished"), "green"),
    **dict.fromkeys(("failed", "lost", "damaged", "stalled"), "red"),
    **dict.fromkeys(("queued", "stopped"), "yellow"),
}


def _presets(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """Return the presets that the hosts declare, where one is to be started."""
    given = context.params
    if given.get("action") != "start" or given.get("words"):
        return []
    declared = (data.get("training_presets") for data in known_of(context)[1].values())
    names = [name for each in declared if isinstance(each, Mapping) for name in each]
    return [name for name in dict.fromkeys(names) if name.startswith(begun)]


def _groups(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    return [each for each in known_of(context)[0] if each.startswith(begun)]


@click.command(
    "train",
    epilog=EXIT_CODES_TEXT,
    options_metavar="[OPTIONS] [--]",
    context_settings={"ignore_unknown_options": True},
)
@of_hosts
@click.argument("action", type=click.Choice(VERBS), metavar="ACTION")
@click.argument(
    "words",
    metavar="[NAME] [launcher's options] [-- ARGS]",
    nargs=-1,
    type=click.UNPROCESSED,
    shell_complete=_presets,
)
@click.option("--json", "as_json", is_flag=True, help="print one JSON document")
@click.option(
    "--across",
    metavar="GROUP",
    shell_complete=_groups,
    help=f"{', '.join(_ACROSS)}: one run of all hosts of a group",
)
@click.option("--all", "everywhere", is_flag=True, help=f"{', '.join(_ALL)}: on all hosts")
@click.option("--once", is_flag=True, help="watch: show it once and exit")
def command(request: Request, **given: Any) -> int:  # fmt: skip
    """Start, follow, stop and explain training runs.

    Runs the launcher on every host at once and shows what each answers. ACTION is one of start,
    try, list, watch, stop, resume, logs, why and presets; words that are not among the options
    below go to the launcher unchanged.
    """
    asked = _Asked(request=request, **given)
    for text in _mistakes(asked):
        raise click.UsageError(text)
    if KeyboardInterrupt not in Hub.NOT_ERROR:
        Hub.NOT_ERROR = (*Hub.NOT_ERROR, KeyboardInterrupt)  # else gevent prints a traceback
    typed = f"pyinfra-gpu train {request.inventory}"
    try:
        return _handled(asked)
    except KeyboardInterrupt:
        if asked.action == "watch":
            _tell(f"\nthe runs go on: `{typed} watch` shows them again")
            return 0
        if asked.action not in ("start", "resume"):
            raise
        _tell(f"\ninterrupted; what was started already continues: `{typed} list` shows what")
        return _INTERRUPTED


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """What was typed, as click has read it."""

    request: Request
    action: str
    words: tuple[str, ...]
    as_json: bool
    across: str | None
    everywhere: bool
    once: bool


def _mistakes(asked: _Asked) -> Iterator[str]:
    """Yield what cannot be meant, by the words alone or by the hosts that there are."""
    action, words, across = asked.action, asked.words, asked.across
    if action == "logs" and {"-f", "--follow"} & {*words}:
        yield "logs are followed on their host: run `train logs -f` there"
    if across is not None and action not in _ACROSS:
        yield f"--across is for start, stop and resume, not for {action}: give --limit {across}"
    if across is not None and asked.request.limit:
        yield "--across names all hosts of the run: leave out --limit"
    if action in LISTS and words:
        yield f"{action} shows the runs of all hosts: leave out {words[0]}"
    unnamed = action in _ALL and not (asked.request.limit or across or asked.everywhere)
    if unnamed and len(hosts := known(asked.request)[1]) > 1:
        yield f"{action} on {some([*hosts], 3)}? Say which with --limit, or give --all"
    own = [*words[: words.index("--")]] if "--" in words else [*words]
    try:
        launcher.train.commands[action].make_context(f"train {action}", own)
    except click.exceptions.Exit:
        raise SystemExit(0) from None
    except click.UsageError as error:
        yield f"{error.format_message()} See `train {action} --help` on a host"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _handled(asked: _Asked) -> int:
    request, action, words = asked.request, asked.action, [*asked.words]
    if asked.across is not None:
        request = replace(request, limit=(asked.across,))
        if action in ("start", "resume"):
            return _shown(lead(request, action, words), asked)
        names = members(request, asked.across, "--across")
        if isinstance(names, str):
            return _shown(TrainAnswer(inventory=request.inventory, reasons=(names,)), asked)
        words = ["--across", *words]
    again = action == "watch" and not (asked.once or asked.as_json)
    if again:
        _tell(f"asking the hosts of {request.inventory} ...")
    while True:
        answer = ask_all(request, action, words)
        code = _shown(answer, asked)
        if not again or not any(run.on for host in answer.hosts for run in host.runs):
            return code
        time.sleep(_WATCH_EVERY_S)


def _shown(answer: TrainAnswer, asked: _Asked) -> int:
    if asked.as_json:
        text = json.dumps(answer.as_json(), indent=2, sort_keys=True)
    elif asked.action not in LISTS:
        text = printed(answer)
    elif draws(sys.stdout):
        clear = "\x1b[H\x1b[2J" if asked.action == "watch" and not asked.once else ""
        text = clear + render(answer, _colour, columns())
    else:
        text = render(answer, width=columns())
    return show(text, "train") or answer.exit_code


def _colour(text: str, word: str) -> str:
    return click.style(text, fg=_COLOURS.get(word))
