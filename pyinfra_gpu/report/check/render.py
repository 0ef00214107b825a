"""A check's answer on a terminal: the worst hosts first, those with the same answer together."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra_gpu.drift.finding import Finding
from pyinfra_gpu.drift.history import moment, what, who
from pyinfra_gpu.report.check.answer import (
    WORDS,
    Answer,
    HostAnswer,
    Verdict,
    found_in,
    verdict_of,
)
from pyinfra_gpu.report.screen import (
    BLANK,
    VARIES,
    Row,
    Sentence,
    Shown,
    counted,
    hosts,
    printed,
    remarks,
)
from pyinfra_gpu.text import WIDTH

_FEW = 8
"""So many deviations are shown in full; a new host has more, and a line for each is enough."""

_STYLES: dict[Verdict, str] = {
    "declared": "green",
    "restart": "bold cyan",
    "drift": "bold yellow",
    "unknown": "bold red",
}


def render(
    answer: Answer,
    *,
    whole: bool = False,
    width: int = WIDTH,
    coloured: bool = False,
    ended: str = "",
) -> str:
    """Return a line for the hosts that are as declared, all deviations of the others, a summary.

    + whole: show each host by itself, with every stage
    + ended: what stands in place of the summary of a check that somebody ended
    """
    ordered = answer.worst_first()
    blocks = hosts((_shown(host, whole=whole) for host in ordered), apart=whole)
    if not whole:
        blocks += remarks(((host.name, note) for host in ordered for note in host.notes), "- ")
    reasons = [Sentence(reason, "! ") for reason in answer.reasons]
    blocks += [BLANK, *reasons] if reasons else []
    return printed(
        [*blocks, BLANK, Sentence(ended or summary(answer), "", "")], width, coloured=coloured
    )


def summary(answer: Answer) -> str:
    """Return the one line that says how many hosts have which verdict, and the exit code."""
    words = [WORDS[host.verdict] for host in answer.worst_first()]
    text = counted(words, sum(host.rehearsal for host in answer.hosts))
    return f"{text}; {answer.seconds:.1f} s, exit code {answer.exit_code}"


def _shown(host: HostAnswer, *, whole: bool) -> Shown:
    word, count = WORDS[host.verdict], len(host.deviations)
    state = word if host.verdict == "declared" else word.upper()
    state += f", {count} deviation{'s' if count != 1 else ''}" if count else ""
    return Shown(
        name=host.name,
        state=state,
        style=_STYLES[host.verdict],
        rehearsal=host.rehearsal,
        rows=tuple(_rows(host, whole=whole)),
    )


def _rows(host: HostAnswer, *, whole: bool) -> Iterator[Row]:
    if host.reason:
        yield Row(label="because", text=host.reason)
    many = len(host.deviations) > _FEW and not whole
    for finding in host.deviations:
        style = _STYLES["restart" if finding.effect == "restart" else "drift"]
        if many and finding.acts:
            yield Row(text=f"{finding.id}: {finding.found}", style=style)
        else:
            yield Row(text=finding.id, style=style)
            yield from _about(finding)
    if many:
        yield Row(text="what was expected, and what the next deploy does about each: -v")
    if whole:
        yield from (Row(label="note", text=note) for note in host.notes)
        for stage in host.stages:
            if verdict_of(stage) == "declared" and (found := found_in(stage)):
                yield Row(label=stage.stage, text=found)
    if number := len(host.not_checked):
        stages = f"{number} stage{'s' if number > 1 else ''}"
        yield Row(label="not checked", text=f"{stages}: {', '.join(host.not_checked)}")


def _about(finding: Finding) -> Iterator[Row]:
    yield Row(label="found", text=finding.found, indent=4)
    yield Row(label="expected", text=finding.expected, indent=4)
    if since := finding.since:
        author = f", by {who(since)}" if who(since) else ""
        text = f"{VARIES}: {what(since)}{author}"
        yield Row(label="since", text=text, varies=moment(since), indent=4)
    yield Row(label="next deploy", text=finding.next_run, indent=4)
    if finding.command:
        yield Row(label="command", text=finding.command, indent=4)
