"""How a command of this launcher is typed by whoever reads of it: here, or on the controller.

Texts name commands as they are typed on the host, between backquotes: `train resume RUN`. Where the
controller asked, the same is `pyinfra-gpu train INVENTORY resume --limit HOST -- RUN` there.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..terminal import one_line

VARIABLE = "PYINFRA_GPU_TRAIN_ASKED"
"""What the controller says of itself, as JSON: see `Caller`."""

_LONGEST = 4096
_LONGEST_NAME = 80
_CONTROLLERS = ("start", "list", "watch", "stop", "resume", "logs", "why")
_QUOTED = re.compile(r"`train ([a-z]{3,8})((?: [^`]{0,400})?)`")


_NO_RUN = re.compile(
    r"(?:no run (?:of several hosts )?is on|there is no run|run \S{1,80} has ended already)\b"
)


def says_no_run(line: str) -> bool:
    """Tell whether a launcher's refusal is that there is no such run on its host."""
    return _NO_RUN.match(line) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """The controller that asked: the words that lead from there to this host.

    + inventory: as it was typed; chosen: the options that choose the hosts
    + group: that was given with --across; who: types there, and on which machine
    """

    inventory: str
    chosen: tuple[str, ...]
    group: str = ""
    who: str = ""

    def as_text(self) -> str:
        """Return what the variable holds."""
        return json.dumps(asdict(self))

    def typed(self, words: Sequence[str]) -> str:
        """Return how a command of the launcher's is typed there."""
        verb, *further = (word for word in words if word != "-f")  # nothing is followed there
        if verb not in _CONTROLLERS:
            return shlex.join(["train", *words])
        # These show the runs of a host, whatever is named.
        behind = ["--", *further] if further and verb not in ("list", "watch") else []
        return " ".join(
            [
                *("pyinfra-gpu", "train", shlex.quote(self.inventory), verb),
                *map(shlex.quote, self.chosen),
                *map(shlex.quote, behind),
            ]
        )


def caller() -> Caller | None:
    """Return the controller that asked; None where somebody types on the host."""
    try:
        told = json.loads(os.environ.get(VARIABLE, "null")[:_LONGEST])
        return Caller(
            inventory=str(told["inventory"]),
            chosen=tuple(map(str, told["chosen"])),
            group=str(told.get("group", "")),
            who=one_line(str(told.get("who", "")))[:_LONGEST_NAME],
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def typed(*words: str) -> str:
    """Return a command of the launcher's as whoever asked types it."""
    asked = caller()
    return asked.typed(words) if asked else " ".join(["train", *words])


def together(verb: str, group: str, *words: str) -> str:
    """Return a command that is about a run of several hosts, between backquotes.

    + group: that was given with --across, if that is known; words: behind --
    """
    asked = caller()
    group = group or (asked.group if asked else "") or "GROUP"
    behind = ["--", *map(shlex.quote, words)] if words else []
    typed_ = ["pyinfra-gpu", "train", "INVENTORY", verb, "--across", shlex.quote(group), *behind]
    return f"`{' '.join(typed_)}`"


def said(text: str) -> str:
    """Return a text with the commands between its backquotes as whoever asked types them."""
    asked = caller()
    if asked is None:
        return text
    inventory = shlex.quote(asked.inventory)
    limits = " ".join(map(shlex.quote, asked.chosen))
    text = text.replace("pyinfra INVENTORY ", f"pyinfra {limits} {inventory} ")
    text = text.replace("train INVENTORY ", f"train {inventory} ")
    return _QUOTED.sub(lambda found: f"`{asked.typed([found[1], *_words(found[2])])}`", text)


def _words(text: str) -> list[str]:
    """Return the words of a command as a shell has them."""
    try:
        return shlex.split(text)
    except ValueError:  # a quote that nothing closes
        return text.split()
