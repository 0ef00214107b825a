"""A diagnosis for the terminal, 80 columns wide."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyinfra_gpu.on_host.diagnosis.entries import Catalogue, Kind
from pyinfra_gpu.on_host.diagnosis.matcher import Diagnosis, Finding
from pyinfra_gpu.text import cut, step, unbroken, wrapped

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


def render(
    diagnosis: Diagnosis,
    known: Catalogue,
    style: Style = lambda text, kind: text,
    *,
    unread: str = "",
) -> str:
    """Return what failed, the line that shows it, why, and what to do.

    + known: the catalogue that the diagnosis was made with
    + style: colours text; plain by default
    + unread: which part of the log was not read, as it is put into a sentence
    """
    if diagnosis.unclassified:
        return "\n".join(_unclassified(diagnosis, known, unread))
    blocks = ["\n".join(_finding(finding, style)) for finding in diagnosis.findings]
    if diagnosis.suppressed:
        seen = f"Also seen, but not the cause: {', '.join(diagnosis.suppressed)}"
        blocks.append("\n".join(wrapped(seen, "", "  ")))
    return "\n\n".join(blocks)


def _finding(finding: Finding, style: Style) -> Iterator[str]:
    who = "" if finding.rank is None else f", rank {finding.rank}"
    yield style(f"{finding.id}  {_LAYERS[finding.layer]}{who}", finding.kind)
    if heading := _HEADINGS.get(finding.kind):
        yield f"  ({heading})"
    for line in finding.shown_by:
        yield from wrapped(line, "  > ", "    ")
    yield ""
    yield "Why"
    yield from wrapped(unbroken(finding.cause), "  ", "  ")
    yield ""
    yield "What to do"
    for number, text in enumerate(finding.fix, 1):
        yield from step(number, text)


def _unclassified(diagnosis: Diagnosis, known: Catalogue, unread: str) -> Iterator[str]:
    count = len(known.entries)
    if unread:
        yield from wrapped(
            "No cause found in what was read of this log, which is not all of it: not read was"
            f" {unread}. The cause may stand there; give the lines around the failure alone."
        )
    else:
        yield from wrapped(
            f"No cause found: none of the {count} failures known here explains this log."
        )
    seen = [known.by_id[id_] for id_ in diagnosis.suppressed]
    # What a cause says of values in the log cannot be said without them.
    if seen := [entry for entry in seen if entry.kind != "wrapper" and "<" not in entry.cause]:
        yield ""
        yield "Also seen, and not shown to be the cause:"
    for entry in seen:
        yield from wrapped(f"{entry.id}: {unbroken(entry.cause)}", "  ", "    ")
    yield ""
    yield "The log ends with:" if diagnosis.tail else "The log is empty."
    for line in diagnosis.tail:
        yield cut(f"  {line}")
