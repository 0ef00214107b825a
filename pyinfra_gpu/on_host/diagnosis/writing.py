"""An answer as a person reads it, everywhere: on the controller and on hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..terminal import WIDTH, command, one_line, without_escapes
from .causes import Step
from .explain import Answer, Found

_CODE = re.compile(r"`[^`]{1,200}`")
_GLUE = "\ue000"  # stands for a blank at which no line may break
_SHOWN_WITH = 300  # characters of a line of a log


def lines(answer: Answer, *, width: int = WIDTH, colour: bool = False) -> list[str]:
    """Return an answer's lines: the root cause, what shows it, the steps, and what followed."""
    if not answer.found:
        return [*_without_cause(answer, width)]
    root, *others = answer.found
    shown = [*cause(root, width=width, colour=colour), "", "What to do"]
    shown += [line for each in steps(root.fix, width=width) for line in each]
    if others:
        names = dict.fromkeys(f"{each.name}: {each.short}" for each in others)
        shown += ["", "Also in the log, and not the cause"]
        shown += [line for each in names for line in _laid_out(_indented(each), width)]
    return shown


def cause(found: Found, *, width: int = WIDTH, colour: bool = False) -> list[str]:
    """Return the lines that say what is wrong, and which line says so."""
    rank = "" if found.rank is None else f"rank {found.rank}"
    where = ", ".join(dict.fromkeys(filter(None, (one_line(found.source), rank))))
    text = Text(_glued(found.cause))
    text.stylize("bold red", 0, len(found.short))
    shown = one_line(found.line)
    if len(shown) > _SHOWN_WITH:
        shown = f"{shown[: _SHOWN_WITH - 3]}..."
    return [
        *_laid_out(text, width, colour),
        "",
        *_laid_out(Text(f"Seen in {where or 'the log'} ({found.name})"), width),
        *_laid_out(_indented(shown, "> "), width),
    ]


def steps(fix: Sequence[Step], *, width: int = WIDTH) -> list[list[str]]:
    """Return the lines of each step; its command has lines of its own, which a shell takes."""
    return [[*_step(number, each, width)] for number, each in enumerate(fix, 1)]


def _step(number: int, step: Step, width: int) -> Iterator[str]:
    text = one_line(step.text)
    if step.run and not text.endswith((".", ":")):
        text += ":"
    yield from _laid_out(_indented(text, f"{number}. "), width)
    if step.run:
        yield from command(step.run, " " * 7, width)


def _without_cause(answer: Answer, width: int) -> Iterator[str]:
    if not answer.unexplained.strip():
        yield "The log is empty."
        return
    what = (
        "No cause found: no known failure explains this log."
        if answer.failed
        else ("No failure found in this log.")
    )
    yield from _laid_out(Text(what), width)
    yield from ("", "It ends with")
    for line in answer.unexplained.splitlines():
        shown = without_escapes(line).expandtabs(4).rstrip()
        yield f"  {shown}" if len(shown) <= width - 2 else f"  {shown[: width - 5]}..."


def _indented(text: str, before: str = "") -> RenderableType:
    """Return a paragraph that hangs behind what stands before it."""
    if not before:
        return Padding(Text(_glued(text)), (0, 0, 0, 2))
    grid = Table.grid()
    grid.add_row(Text(before), Text(_glued(text)))
    return Padding(grid, (0, 0, 0, 2))


def _glued(text: str) -> str:
    return _CODE.sub(lambda found: found[0].replace(" ", _GLUE), one_line(text))


def _laid_out(what: RenderableType, width: int, colour: bool = False) -> list[str]:
    console = Console(
        file=StringIO(),
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    with console.capture() as captured:
        console.print(Group(what))
    return [line.rstrip() for line in captured.get().replace(_GLUE, " ").splitlines()]
