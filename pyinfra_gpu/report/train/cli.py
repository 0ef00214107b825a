"""The verb `train`: passes words to the hosts' launchers and shows what they say."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace

import click
from gevent.hub import Hub  # type: ignore[import-untyped]  # it has none

from pyinfra_gpu.output import show
from pyinfra_gpu.report.check.cli import known_of, of_hosts
from pyinfra_gpu.report.check.running import Request, known
from pyinfra_gpu.report.train.answer import TrainAnswer, printed, render
from pyinfra_gpu.report.train.asking import LISTS, ask_all, lead
from pyinfra_gpu.text import columns, draws, some

VERBS = ("start", "try", "list", "watch", "stop", "resume", "logs", "why", "presets")
EXIT_CODES_TEXT = (
    "exit code: 0 well; 1 a host's launcher refused, or could not be asked; 2 a run"
    " failed, is stalled or has a NaN or infinite loss, or a usage error. 1 takes"
    " precedence over 2."
)
_ACROSS = ("start", "stop", "resume")
_ALL = (*_ACROSS, "try")
_INTERRUPTED = 130
_WATCH_EVERY_S = 5.0


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
)
@click.option("--json", "as_json", is_flag=True, help="print one JSON document")
@click.option(
    "--across",
    metavar="GROUP",
    shell_complete=_groups,
    help=f"{', '.join(_ACROSS)}: one run of all hosts of a group",
)
@click.option("--all", "everywhere", is_flag=True, help=f"{', '.join(_ALL)}: on all hosts")
def command(
    request: Request,
    action: str,
    words: tuple[str, ...],
    as_json: bool,
    across: str | None,
    everywhere: bool,
) -> int:  # fmt: skip
    """Start, follow, stop and explain training runs.

    Runs the launcher on every host at once and shows what each answers. ACTION is one of start,
    try, list, watch, stop, resume, logs and why; words that are not among the options below go to
    the launcher unchanged.
    """
    if action == "logs" and {"-f", "--follow"} & {*words}:
        raise click.UsageError("logs are followed on their host: run `train logs -f` there")
    if across is not None and (action not in _ACROSS or request.limit):
        which = f"--across is for {', '.join(_ACROSS)}"
        raise click.UsageError(f"{which}, and names all hosts: leave out --limit")
    unnamed = action in _ALL and not (request.limit or across or everywhere)
    if unnamed and len(hosts := known(request)[1]) > 1:
        which = f"{action} on {some([*hosts], 3)}?"
        raise click.UsageError(f"{which} Say which with --limit, or give --all")
    if KeyboardInterrupt not in Hub.NOT_ERROR:
        Hub.NOT_ERROR = (*Hub.NOT_ERROR, KeyboardInterrupt)  # else gevent prints a traceback
    try:
        asked = [*words]
        if action == "watch" and "--once" in asked:  # the launcher's, which is asked for a list
            asked.remove("--once")
            action = "list"
        return _asked(request, action, asked, across, as_json=as_json)
    except KeyboardInterrupt:
        listed = f"`pyinfra-gpu train {request.inventory} list`"
        print(f"\nruns continue: {listed} shows them", file=sys.stderr, flush=True)
        return 0 if action == "watch" else _INTERRUPTED


def _asked(
    request: Request, action: str, words: list[str], across: str | None, *, as_json: bool
) -> int:
    if across is not None:
        request = replace(request, limit=(across,))
        if action in ("start", "resume"):
            return _shown(lead(request, action, words), action, as_json=as_json)
        words = ["--across", *words]
    while True:
        code = _shown(answer := ask_all(request, action, words), action, as_json=as_json)
        on = any(run.on for host in answer.hosts for run in host.runs)
        if action != "watch" or as_json or not on:
            return code
        time.sleep(_WATCH_EVERY_S)


def _shown(answer: TrainAnswer, action: str, *, as_json: bool) -> int:
    text = json.dumps(answer.as_json(), indent=2, sort_keys=True)
    if not as_json:
        clear = "\x1b[H\x1b[2J" if action == "watch" and draws(sys.stdout) else ""
        text = clear + (render(answer, columns()) if action in LISTS else printed(answer))
    return show(text) or answer.exit_code
