"""A start as it is typed once more: what was given stays, but for what a sentence changes of it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

from . import calling, record, rundir
from .errors import TrainError


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What stands behind `train start`; most of it behind `train resume` as well.

    + what: the preset, or --like and a run
    + gpus: as --gpus takes them, empty for all; settings: what --set gave, as NAME=VALUE
    + words: behind `--`
    + declared: the preset's own arguments, which --set takes; None where they are not known
    """

    what: tuple[str, ...]
    gpus: str = ""
    settings: tuple[str, ...] = ()
    queue: bool = False
    unproven: bool = False
    retries: int = 0
    words: tuple[str, ...] = ()
    declared: frozenset[str] | None = None

    def changed(self, name: str, value: object) -> Start:
        """Return it with another value of an argument, where that was given or as --set."""
        setting = f"{name}={value}"
        if name in {each for each, _ in arguments(self.words)}:
            return replace(self, words=tuple(_set(self.words, name, str(value))))
        if self.declared is not None and name not in {*self.declared, "ranks"}:
            return replace(self, words=(*self.words, f"--{setting}"))
        others = (each for each in self.settings if each.partition("=")[0] != name)
        return replace(self, settings=(*others, setting))

    def without(self, unwanted: Callable[[str], bool]) -> Start:
        """Return it without the arguments of such names behind `--`."""
        return replace(self, words=tuple(_left(self.words, unwanted)))

    def over(self, earlier: Start) -> Start:
        """Return an earlier start with what was typed now in place of, or beside, its own."""
        names = {each.partition("=")[0] for each in self.settings}
        kept = (each for each in earlier.settings if each.partition("=")[0] not in names)
        return replace(
            earlier,
            gpus=self.gpus or earlier.gpus,
            settings=(*kept, *self.settings),
            queue=self.queue or earlier.queue,
            unproven=self.unproven or earlier.unproven,
            retries=self.retries or earlier.retries,
            words=self.words or earlier.words,
        )

    def typed(self) -> list[str]:
        """Return the words."""
        return [
            *self.what,
            *(["--gpus", self.gpus] if self.gpus else []),
            *(word for each in self.settings for word in ("--set", each)),
            *(["--queue"] if self.queue else []),
            *(["--unproven"] if self.unproven else []),
            *(["--retries", str(self.retries)] if self.retries else []),
            *(["--", *self.words] if self.words else []),
        ]

    def here(self) -> str:
        """Return the command that starts it on this host alone."""
        return shlex.join(["train", "start", *self.typed()])

    def together(self, group: str, verb: str = "start") -> str:
        """Return the command that starts it on all hosts of a group; see `calling.together`.

        What is refused of such a run is left out.

        + verb: "resume" where `what` is the run that goes on
        """
        return calling.together(verb, group, *replace(self, queue=False, retries=0).typed())


def of_options(asked: argparse.Namespace, *what: str) -> Start:
    """Return the start, or what a resume was given of one, that stands on a command line.

    + what: in place of the preset or the run that stands there
    """
    return Start(
        what=what,
        gpus=asked.gpus or "",
        settings=tuple(getattr(asked, "set", ())),
        queue=asked.queue,
        unproven=asked.unproven,
        retries=asked.retries or 0,
        words=tuple(getattr(asked, "words", ())),
    )


def of_run(run: record.Run, gpus: str = "") -> Start:
    """Return the start that a run was begun with, as far as it is written down.

    + gpus: those that it had, as --gpus takes them; empty for all of the host
    """
    request: rundir.Document = {}
    with suppress(TrainError):
        request = rundir.Run(run.folder).request()
    preset, words = request.get("preset"), request.get("words")
    known = preset.get("arguments") if isinstance(preset, dict) else None
    retries = request.get("retries")
    return Start(
        what=(run.preset,),
        gpus=gpus,
        settings=tuple(f"{name}={value}" for name, value in run.overrides.items()),
        queue=request.get("queue") is True,
        unproven=run.unproven,
        retries=retries if isinstance(retries, int) else 0,
        words=tuple(map(str, words)) if isinstance(words, list) else (),
        declared=frozenset(known) if isinstance(known, dict) else None,
    )


def arguments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield name and value of each `--name=value` and `--name value`."""
    for word, following in pairwise([*words, ""]):
        name, equals, value = word.partition("=")
        if name.startswith("--") and len(name) > 2:
            yield name[2:], value if equals else following


def _set(words: Sequence[str], name: str, value: str) -> Iterator[str]:
    """Yield the words with another value of an argument, in the form in which it was given."""
    for before, word in pairwise(["", *words]):
        if before == f"--{name}":
            yield value
        else:
            yield f"--{name}={value}" if word.startswith(f"--{name}=") else word


def _left(words: Sequence[str], unwanted: Callable[[str], bool]) -> Iterator[str]:
    """Yield the words without the arguments of such names, and without their values."""
    for before, word in pairwise(["", *words]):
        name = word.removeprefix("--").partition("=")[0]
        of = before[2:] if before.startswith("--") and "=" not in before else ""
        its_value = bool(of) and unwanted(of)
        if word.startswith("--"):
            its_value = unwanted(name)
        if not its_value:
            yield word
