"""An answer as a person reads it, everywhere: on the controller and on hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..terminal import WIDTH, command, one_line, paragraph, without_escapes
from .causes import Step
from .explain import Answer, Found

_SHOWN_WITH = 300  # characters of a line of a log


def lines(answer: Answer, *, width: int = WIDTH, colour: bool = False) -> list[str]:
    """Return an answer's lines: the root cause, what shows it, the steps, and what followed."""
    if not answer.found:
        return [*_without_cause(answer, width)]
    root, *others = answer.found
    shown = [*cause(root, width=width, colour=colour), "", "What to do"]
    shown += [line for each in steps(root.fix, width=width) for line in each]
    if others:
        shown += ["", "Also in the log, and not the cause"]
        for each in dict.fromkeys(f"{each.name}: {each.short}" for each in others):
            shown += paragraph(each, "  ", "  ", width=width)
    return shown


def cause(found: Found, *, width: int = WIDTH, colour: bool = False) -> list[str]:
    """Return the lines that say what is wrong, and which line says so."""
    rank = "" if found.rank is None else f"rank {found.rank}"
    where = ", ".join(dict.fromkeys(filter(None, (one_line(found.source), rank))))
    text = "\n".join(paragraph(found.cause, width=width))
    end = len(found.short) if colour else 0
    text = f"\x1b[1;31m{text[:end]}\x1b[0m{text[end:]}" if end else text
    shown = one_line(found.line)
    if len(shown) > _SHOWN_WITH:
        shown = f"{shown[: _SHOWN_WITH - 3]}..."
    return [
        *text.splitlines(),
        "",
        *paragraph(f"Seen in {where or 'the log'} ({found.name})", width=width),
        *paragraph(shown, "  > ", "    ", width=width),
    ]


def steps(fix: Sequence[Step], *, width: int = WIDTH) -> list[list[str]]:
    """Return the lines of each step; its command has lines of its own, which a shell takes."""
    return [[*_step(number, each, width)] for number, each in enumerate(fix, 1)]


def _step(number: int, step: Step, width: int) -> Iterator[str]:
    text = one_line(step.text)
    if step.run and not text.endswith((".", ":")):
        text += ":"
    yield from paragraph(text, f"  {number}. ", "     ", width=width)
    if step.run:
        yield from command(step.run, " " * 7, width)


def _without_cause(answer: Answer, width: int) -> Iterator[str]:
    if not answer.unexplained.strip():
        yield "The log is empty."
        return
    known = "No cause found: no known failure explains this log."
    yield from paragraph(
        known if answer.failed else "No known failure is in this log.", width=width
    )
    yield from ("", "It ends with")
    for line in answer.unexplained.splitlines():
        shown = without_escapes(line).expandtabs(4).rstrip()
        yield f"  {shown}" if len(shown) <= width - 2 else f"  {shown[: width - 5]}..."
