"""A diagnosis for the terminal, 80 columns wide."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator

from pyinfra_gpu.diagnosis.catalogue import Catalogue, Kind
from pyinfra_gpu.diagnosis.matcher import Diagnosis, Finding

WIDTH = 80
Style = Callable[[str, Kind], str]
"""Colours a piece of text after a finding's kind."""

_LAYERS = {
    "driver": "the driver and the GPU",
    "cuda": "CUDA",
    "libs": "libraries",
    "store": "the launcher and its store",
    "nccl": "NCCL and its kin",
    "compile": "compilation",
    "host": "the host",
}
_HEADINGS: dict[Kind, str] = {
    "root": "",
    "warn": "nothing is seen that ended the run; worth knowing",
    "evidence": "seen, and no failure that follows from it",
    "expected": "expected on such a GPU, no fault",
}
_QUOTED = re.compile(r"`([^`]{1,400})`")
# A quoted text that somebody will want to copy: a program with arguments, or a setting of a shell.
_COMMAND = re.compile(
    r"(?:[A-Z][A-Z0-9_]{1,40}=\S{0,80} ){0,6}[a-z./~][\w./+-]{0,60}(?: |$)|(?:export|unset) "
)
_GLUE = "\x00"  # stands for a blank at which a line must not break


def render(diagnosis: Diagnosis, known: Catalogue, style: Style = lambda text, kind: text) -> str:
    """Return what failed, the line that shows it, why, and what to do.

    + known: the catalogue that the diagnosis was made with
    + style: colours text; plain by default
    """
    if diagnosis.unclassified:
        return "\n".join(_unclassified(diagnosis, known))
    blocks = ["\n".join(_finding(finding, style)) for finding in diagnosis.findings]
    if diagnosis.suppressed:
        seen = f"Also seen, but not the cause: {', '.join(diagnosis.suppressed)}"
        blocks.append("\n".join(_wrapped(seen, "", "  ")))
    return "\n\n".join(blocks)


def _finding(finding: Finding, style: Style) -> Iterator[str]:
    who = "" if finding.rank is None else f", rank {finding.rank}"
    yield style(f"{finding.id}  {_LAYERS[finding.layer]}{who}", finding.kind)
    if heading := _HEADINGS.get(finding.kind):
        yield f"  ({heading})"
    yield from _wrapped(finding.evidence, "  > ", "    ")
    yield ""
    yield "Why"
    yield from _wrapped(_plain(finding.cause), "  ", "  ")
    yield ""
    yield "What to do"
    for number, step in enumerate(finding.fix, 1):
        yield from _step(number, step)


def _step(number: int, step: str) -> Iterator[str]:
    """Yield a step's lines; each command stands on a line of its own, unbroken."""
    first = f"{number:3}. "
    blank = " " * len(first)
    for text, command in _parts(step):
        if command:
            yield f"{first if first.strip() else blank + '  '}{command}"
        else:
            yield from _wrapped(text, first, blank)
        first = blank


def _parts(step: str) -> Iterator[tuple[str, str]]:
    """Split a step into (text, "") and ("", command)."""
    text = ""
    place = 0
    for found in _QUOTED.finditer(step):
        text += step[place : found.start()]
        place = found.end()
        inside = text.count("(") > text.count(")")
        if inside or " " not in found[1] or not _COMMAND.match(found[1]):
            text += found[0].replace(" ", _GLUE)
            continue
        if text := text.strip():
            yield text, ""
        yield "", found[1]
        # What follows begins a line: ": shows ..." becomes "shows ...".
        place += len(step[place:]) - len(step[place:].lstrip(",.;: "))
        text = ""
    if text := (text + step[place:]).strip():
        yield text, ""


def _unclassified(diagnosis: Diagnosis, known: Catalogue) -> Iterator[str]:
    count = len(known.entries)
    yield from _wrapped(
        f"No cause found: none of the {count} failures known here explains this log.", "", ""
    )
    seen = [known.by_id[id_] for id_ in diagnosis.suppressed]
    if seen := [entry for entry in seen if entry.kind != "wrapper"]:
        yield ""
        yield "Also seen, and not shown to be the cause:"
    for entry in seen:
        yield from _wrapped(f"{entry.id}: {_plain(entry.cause)}", "  ", "    ")
    yield ""
    yield "The log ends with:" if diagnosis.tail else "The log is empty."
    for line in diagnosis.tail:
        yield f"  {line}" if len(line) <= WIDTH - 2 else f"  {line[: WIDTH - 5]}..."


def _wrapped(text: str, first: str, others: str) -> list[str]:
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=_GLUE not in text,  # a command that is broken cannot be copied
    )
    return [line.replace(_GLUE, " ") for line in lines] or [first.rstrip()]


def _plain(text: str) -> str:
    return _QUOTED.sub(lambda found: found[0].replace(" ", _GLUE), text)
