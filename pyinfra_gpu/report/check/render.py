"""A check's answer on a terminal: the worst hosts first, those with the same answer together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.text import Text

from pyinfra_gpu.drift.finding import Finding
from pyinfra_gpu.drift.history import moment, what, who
from pyinfra_gpu.host_names import brief
from pyinfra_gpu.report.check.answer import (
    WORDS,
    Answer,
    HostAnswer,
    Verdict,
    found_in,
    verdict_of,
    worst_first,
)
from pyinfra_gpu.report.screen import (
    BLANK,
    Sentence,
    alike,
    counted,
    head,
    joined,
    labelled,
    printed,
    said_once,
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
    answer: Answer, *, whole: bool = False, width: int = WIDTH, coloured: bool = False
) -> str:
    """Return a line for the hosts that are as declared, all deviations of the others, a summary.

    + whole: show each host by itself, with every stage
    """
    blocks = [BLANK, *blocks_of(answer.hosts, whole=whole)] if answer.hosts else []
    blocks += [BLANK, *(Sentence(reason, "! ") for reason in answer.reasons)]
    blocks += [BLANK] if answer.reasons else []
    blocks.append(Sentence(summary(answer), "", ""))
    return printed(blocks, width, coloured=coloured).lstrip("\n")


def blocks_of(hosts: Sequence[HostAnswer], *, whole: bool) -> list[RenderableType]:
    """Return what `render` shows of the hosts, the worst first, and the notes at the end."""
    ordered = worst_first(hosts)
    groups = [[host] for host in ordered] if whole else alike(ordered, _answer_of)
    notes = [] if whole else said_once((host.name, note) for host in ordered for note in host.notes)
    apart = [
        Sentence(f"note, {'all hosts' if len(names) == len(hosts) else brief(names)}: {note}")
        for note, names in notes
    ]
    return joined([*(_block(group, whole=whole) for group in groups), apart])


def summary(answer: Answer) -> str:
    """Return the one line that says how many hosts have which verdict, and the exit code."""
    words = [WORDS[verdict] for verdict, n in answer.counts().items() for _ in range(n)]
    text = counted(words, sum(host.rehearsal for host in answer.hosts))
    return f"{text}; {answer.seconds:.1f} s, exit code {answer.exit_code}"


def _answer_of(host: HostAnswer) -> Hashable:
    """Return what hosts in one block have in common: all that is shown but moments and notes."""
    since = tuple(each.since and (what(each.since), who(each.since)) for each in host.deviations)
    findings = tuple(replace(each, since=None) for each in host.deviations)
    return host.verdict, host.rehearsal, host.reason, host.not_checked, findings, since


def _block(group: Sequence[HostAnswer], *, whole: bool) -> list[RenderableType]:
    first, count = group[0], len(group[0].deviations)
    word = WORDS[first.verdict] if first.verdict == "declared" else WORDS[first.verdict].upper()
    tail = f", {count} deviation{'s' if count != 1 else ''}" if count else ""
    title = head([host.name for host in group], word + tail, rehearsal=first.rehearsal)
    blocks: list[RenderableType] = [Sentence(title, word=word, style=_STYLES[first.verdict])]
    blocks += [labelled([("because", first.reason)], 2)] if first.reason else []
    listed = [each for each in first.deviations if each.acts and count > _FEW and not whole]
    blocks += [Sentence(f"{each.id}: {each.found}", "  ", "    ") for each in listed]
    if listed:
        blocks.append(Text("  what was expected, and what the next deploy does about each: -v"))
    for number, finding in enumerate(first.deviations):
        if finding not in listed:
            style = _STYLES["restart" if finding.effect == "restart" else "drift"]
            blocks.append(Text(f"  {finding.id}", style=style))
            blocks.append(labelled(_rows(finding, [host.deviations[number] for host in group]), 4))
    rows = [("note", note) for note in first.notes if whole]
    rows += [
        (each.stage.value, found_in(each))
        for each in first.stages
        if whole and verdict_of(each) == "declared" and found_in(each)
    ]
    if number := len(first.not_checked):
        stages = f"{number} stage{'s' if number > 1 else ''}"
        rows.append(("not checked", f"{stages}: {', '.join(first.not_checked)}"))
    return [*blocks, labelled(rows, 2)] if rows else blocks


def _rows(finding: Finding, same: Sequence[Finding]) -> list[tuple[str, str]]:
    """Return what is shown of a finding.

    + same: that finding of each host of the group, which may be since different moments
    """
    rows = [("found", finding.found), ("expected", finding.expected)]
    if since := finding.since:
        moments = sorted({moment(each.since) for each in same if each.since})
        author = f", by {who(since)}" if who(since) else ""
        rows.append(
            ("since", f"{' to '.join(moments[:1] + moments[1:][-1:])}: {what(since)}{author}")
        )
    rows.append(("next deploy", finding.next_run))
    return [*rows, ("command", finding.command)] if finding.command else rows
