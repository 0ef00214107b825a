"""The command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from .. import completion
from . import offering
from .offering import offer
from .presets import nearest, secret_in

_HIDDEN = ("supervise", "again")
"""What a run's unit runs, and what the user manager runs after a boot."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return what is asked for; argparse ends the program on a mistake, with 2."""
    words, further = _split(list(words))
    parser = argparse.ArgumentParser(
        prog="train", description="Start, follow, stop and resume training runs on this host."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, help_: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=help_, description=help_)

    _starting(add)
    _seeing(add)
    stop = add("stop", "end a run, with all that it started")
    offer(
        stop.add_argument("run", nargs="?", metavar="RUN", help="may be left out where one is on"),
        offering.going,
    )
    # For the controller, whose own --across this is.
    stop.add_argument("--across", action="store_true", help=argparse.SUPPRESS)
    supervise = commands.add_parser(_HIDDEN[0])
    supervise.add_argument("run")
    completion.add_shell(add("completion", completion.HELP))
    commands.add_parser(_HIDDEN[1])
    completion.answer(parser, _HIDDEN)
    if words and not words[0].startswith("-") and words[0] not in commands.choices:
        shown = [name for name in commands.choices if name not in _HIDDEN]
        hint = nearest(words[0], shown, "commands are")
        parser.error(f"there is no command {words[0]!r:.80}: {hint}")
    asked = parser.parse_args(words)
    if asked.command == "list" and asked.curves and not asked.json:
        parser.error("--curves goes with --json: give both, or leave it out")
    if further and asked.command != "start":
        parser.error(f"nothing goes behind -- of `train {asked.command}`")
    if asked.command == "start" and asked.like and asked.preset:
        parser.error(
            f"--like {asked.like} has a preset of its own: give it or {asked.preset}, not both"
        )
    asked.words = further
    return asked


def _starting(add: Callable[[str, str], argparse.ArgumentParser]) -> None:
    start = add("start", "check everything, start a run, and leave it to itself")
    preset = start.add_argument("preset", nargs="?", metavar="PRESET", help="of training_presets")
    offer(preset, offering.presets)
    setting = start.add_argument(
        "--set",
        action="append",
        type=_setting,
        default=[],
        metavar="K=V",
        help="another value of an argument; may be given again for others",
    )
    offer(setting, offering.settings)
    start.add_argument("--dry", action="store_true", help="print the command and start nothing")
    offer(
        start.add_argument(
            "--like", metavar="RUN", help="repeat this run: its code, its arguments"
        ),
        offering.runs,
    )
    _shared(start)
    _again(start, 0, "%(default)s")
    whole = start.format_usage().removeprefix("usage: ").rstrip()
    start.usage = f"{whole} [-- ARGS]".replace("%", "%%")
    start.epilog = "What stands behind -- goes to the program, behind the preset's arguments."
    _trying(add)
    resume = add("resume", "let a run go on from its newest complete checkpoint")
    offer(
        resume.add_argument("run", nargs="?", metavar="RUN", help="default: the newest"),
        offering.resumable,
    )
    for command in (start, resume):
        # What the controller gives, with this host's part of it on standard input; see `across`.
        command.add_argument("--hosts", type=_number, default=1, help=argparse.SUPPRESS)
    resume.add_argument("--dry", action="store_true", help="say from where, and start nothing")
    _shared(resume)
    _again(resume, None, "as before")


def _trying(add: Callable[[str, str], argparse.ArgumentParser]) -> None:
    trial = add("try", "a few steps of presets: do they fit, and how fast are they")
    presets = trial.add_argument(
        "presets", nargs="*", metavar="PRESET", help="default: all of them"
    )
    offer(presets, offering.presets)
    trial.add_argument(
        "--set", action="append", type=_setting, default=[], metavar="K=V", help="as with start"
    )
    trial.add_argument(
        "--seconds", type=_seconds, default=600, help="that one may take (default: %(default)s)"
    )
    _shared(trial)


def _seeing(add: Callable[[str, str], argparse.ArgumentParser]) -> None:
    listing = add("list", "the runs of this host")
    listing.add_argument("--json", action="store_true", help="as one document")
    listing.add_argument("--curves", action="store_true", help="with --json: the losses as well")
    listing.add_argument("--all", action="store_true", help="not only the last twenty")
    watch = add("watch", "a run as it goes: steps, loss, speed, GPUs")
    offer(
        watch.add_argument("run", nargs="?", metavar="RUN", help="default: the newest"),
        offering.runs,
    )
    watch.add_argument("--plain", action="store_true", help="lines in place of a screen")
    watch.add_argument("--once", action="store_true", help="as it is now, and no longer")
    why = add("why", "why a run failed, and what to do")
    offer(
        why.add_argument("run", nargs="?", metavar="RUN", help="default: the newest"), offering.runs
    )
    why.add_argument("--json", action="store_true", help="as one document")
    logs = add("logs", "what a rank printed")
    offer(
        logs.add_argument("run", nargs="?", metavar="RUN", help="default: the newest"),
        offering.with_logs,
    )
    logs.add_argument("-f", "--follow", action="store_true", help="and what it prints")
    offer(
        logs.add_argument("--rank", type=int, default=0, metavar="N", help="default: %(default)s"),
        offering.ranks,
    )
    logs.add_argument("--launcher", action="store_true", help="what torchrun itself printed")
    logs.add_argument("--attempt", type=int, metavar="N", help="default: the last")


def _shared(command: argparse.ArgumentParser) -> None:
    offer(
        command.add_argument("--gpus", metavar="0,1", help="indices or UUIDs; default: all"),
        offering.devices,
    )
    command.add_argument(
        "--queue", action="store_true", help="wait, in order, where they are taken"
    )
    command.add_argument(
        "--unproven", action="store_true", help="although no smoke test holds; it is noted"
    )


def _setting(text: str) -> str:
    """Return another value of an argument; argparse tells of what has no name or no value."""
    name, equals, _ = text.partition("=")
    if not name or not equals:
        shown = name if name and secret_in([text]) is None else "NAME"
        raise argparse.ArgumentTypeError(f"it is written --set {shown}=VALUE, in one word")
    return text


def _number(text: str) -> int:
    """Return a small whole number; argparse tells of anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) < 4):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 999")
    return int(text)


def _seconds(text: str) -> int:
    """Return a time in which something can be done; argparse tells of anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) < 7 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 1 to 999999")
    return int(text)


def _again(command: argparse.ArgumentParser, default: int | None, told: str) -> None:
    command.add_argument(
        "--retries",
        type=_number,
        default=default,
        metavar="N",
        help="begin again by itself, up to N times, after a failure that mostly passes;"
        f" default: {told}",
    )


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words before the first `--`, and those behind it."""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]
