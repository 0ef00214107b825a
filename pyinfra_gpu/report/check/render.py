"""A check's answer on a terminal: the worst hosts first, those with the same answer together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rich.console import RenderableType
from rich.text import Text

from pyinfra_gpu.drift.finding import Finding
from pyinfra_gpu.drift.history import moment, what, who
from pyinfra_gpu.host_names import brief
from pyinfra_gpu.report.check.answer import WORDS, Answer, HostAnswer, Verdict, worst_first
from pyinfra_gpu.report.screen import (
    BLANK,
    Sentence,
    alike,
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
    blocks = blocks_of(answer.hosts, whole=whole)
    wrong = [Sentence(reason, "! ") for reason in answer.reasons]
    blocks += [BLANK, *wrong] if wrong and blocks else wrong
    blocks += [BLANK] if blocks else []
    blocks.append(Sentence(summary(answer), "", ""))
    return printed(blocks, width, coloured=coloured)


def blocks_of(hosts: Sequence[HostAnswer], *, whole: bool) -> list[RenderableType]:
    """Return what `render` shows of the hosts, the worst first."""
    ordered = worst_first(hosts)
    groups = [[host] for host in ordered] if whole else alike(ordered, _answer_of)
    shown = [_block(group, whole=whole) for group in groups]
    apart: list[RenderableType] = []
    notes = [] if whole else said_once((host.name, note) for host in ordered for note in host.notes)
    for note, names in notes:
        about = [n for n, group in enumerate(groups) if [host.name for host in group] == names]
        if about:
            shown[about[0]].append(labelled([("note", note)], 2))
        else:
            who_ = "all hosts" if len(names) == len(hosts) else brief(names)
            apart.append(Sentence(f"note, {who_}: {note}"))
    return joined([*shown, *([apart] if apart else [])])


def summary(answer: Answer) -> str:
    """Return the one line that says how many hosts have which verdict, and the exit code."""
    total, rehearsals = len(answer.hosts), sum(host.rehearsal for host in answer.hosts)
    text = f"{total} host{'s' if total != 1 else ''}" if total else "no host was checked"
    if rehearsals:
        text += " (rehearsal)" if rehearsals == total else f" ({rehearsals} of them rehearsal)"
    counts = ", ".join(f"{count} {WORDS[verdict]}" for verdict, count in answer.counts().items())
    text += f": {counts}" if counts else ""
    return f"{text}; {answer.seconds:.1f} s, exit code {answer.exit_code}"


def _answer_of(host: HostAnswer) -> Hashable:
    """Return what hosts in one block have in common: all that is shown but moments and notes."""
    findings = tuple(
        (
            *(each.id, each.found, each.expected, each.next_run, each.command),
            each.since and (what(each.since), who(each.since)),
        )
        for each in host.deviations
    )
    return host.verdict, host.rehearsal, host.reason, host.not_checked, findings


def _block(group: Sequence[HostAnswer], *, whole: bool) -> list[RenderableType]:
    first, names = group[0], [host.name for host in group]
    verdict, count = first.verdict, len(first.deviations)
    word = WORDS[verdict] if verdict == "declared" else WORDS[verdict].upper()
    tail = f", {count} deviation{'s' if count != 1 else ''}" if count else ""
    title = head(names, word + tail, rehearsal=first.rehearsal)
    blocks: list[RenderableType] = [Sentence(title, word=word, style=_STYLES[verdict])]
    if first.reason:
        blocks.append(labelled([("because", first.reason)], 2))
    brief_ = count > _FEW and not whole
    if brief_:
        texts = [f"{each.id}: {each.found}" for each in first.deviations if each.acts]
        blocks += [Sentence(text, "  ", "    ") for text in texts]
        blocks.append(Text("  what was expected, and what the next deploy does about each: -v"))
    for number, finding in enumerate(first.deviations):
        if brief_ and finding.acts:
            continue
        style = _STYLES["restart" if finding.effect == "restart" else "drift"]
        blocks.append(Text(f"  {finding.id}", style=style))
        blocks.append(labelled(_rows(finding, [host.deviations[number] for host in group]), 4))
    good = [stage for stage in first.stages if stage.verdict == "declared" and stage.found]
    rows = [("note", note) for note in first.notes if whole]
    rows += [(stage.name, stage.found) for stage in good if whole]
    if first.not_checked:
        stages = f"{len(first.not_checked)} stage{'s' if len(first.not_checked) > 1 else ''}"
        rows.append(("not checked", f"{stages}: {', '.join(first.not_checked)}"))
    return [*blocks, labelled(rows, 2)] if rows else blocks


def _rows(finding: Finding, same: Sequence[Finding]) -> list[tuple[str, str]]:
    """Return what is shown of a finding.

    + same: that finding of each host of the group, which may be since different moments
    """
    rows = [("found", finding.found), ("expected", finding.expected)]
    if since := finding.since:
        moments = sorted({moment(each.since) for each in same if each.since})
        when = moments[0] if len(moments) == 1 else f"{moments[0]} to {moments[-1]}"
        author = f", by {who(since)}" if who(since) else ""
        rows.append(("since", f"{when}: {what(since)}{author}"))
    rows.append(("next deploy", finding.next_run))
    return [*rows, ("command", finding.command)] if finding.command else rows
