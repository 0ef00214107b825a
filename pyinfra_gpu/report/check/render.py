"""A check's answer for the terminal, 80 columns wide.

Worst hosts first, and those with the same answer together; what many of them share is said once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from pyinfra_gpu.drift.finding import Finding
from pyinfra_gpu.drift.history import moment, what, who
from pyinfra_gpu.host_names import brief
from pyinfra_gpu.report.check.answer import WORDS, Answer, HostAnswer, Verdict, worst_first
from pyinfra_gpu.report.fleet import alike, counted, listed, said_once
from pyinfra_gpu.text import labelled, wrapped

Style = Callable[[str, Verdict], str]
"""Colours a piece of text after a verdict."""

_TEXT_AT = 14  # the column behind "next run" and its like


def plain(text: str, verdict: Verdict) -> str:
    """Return the text as it is, without colours."""
    del verdict
    return text


def render(answer: Answer, style: Style = plain, *, whole: bool = False) -> str:
    """Return a line for the hosts that are as declared, all deviations of the others, a summary.

    + style: colours text; plain by default
    + whole: show each host by itself, with every stage
    """
    lines = lines_of(answer.hosts, len(answer.hosts), style, whole=whole) if answer.hosts else []
    return "\n".join([*lines, *([""] if lines else []), *last_lines(answer)])


def lines_of(
    some: Sequence[HostAnswer], total: int, style: Style = plain, *, whole: bool = False
) -> list[str]:
    """Return what `render` says of some hosts, the worst first.

    + total: how many hosts there are in all
    """
    hosts = worst_first(some)
    groups = [[host] for host in hosts] if whole else alike(hosts, _answer_of)
    blocks = [_block(group, style, whole=whole) for group in groups]
    said = said_once((host.name, note) for host in hosts for note in host.notes)
    apart: list[str] = []
    for note, names in () if whole else said:
        about = next((n for n, group in enumerate(groups) if _names(group) == names), None)
        if about is not None:
            blocks[about] += _labelled("note", note, indent=2)
        else:
            told = "all of them" if len(names) == total else brief(names)
            apart += wrapped(f"note, {told}: {note}", "", "  ", whole_words=True)
    return _joined([*blocks, *([apart] if apart else [])])


def last_lines(answer: Answer | None) -> list[str]:
    """Return what is wrong with the inventory, and the summary.

    + answer: None where the check was ended before all had answered: there is nothing to sum up
    """
    if answer is None:
        return ["ended before the other hosts had answered"]
    wrong = [line for each in answer.reasons for line in wrapped(each, "! ", "  ")]
    return [*wrong, *([""] if wrong else []), *wrapped(summary(answer))]


def _joined(blocks: Sequence[list[str]]) -> list[str]:
    """Return the blocks' lines, with an empty one between them unless both are a single line."""
    lines: list[str] = []
    before = 1
    for block in blocks:
        lines += [""] if lines and max(before, len(block)) > 1 else []
        lines += block
        before = len(block)
    return lines


def summary(answer: Answer) -> str:
    """Return the one line that tells how many hosts are how, and the exit code."""
    total = len(answer.hosts)
    counts = [f"{count} {WORDS[verdict]}" for verdict, count in answer.counts().items()]
    head = f"{total} host{'s' if total != 1 else ''}" if total else "no host was looked at"
    if rehearsals := sum(host.rehearsal for host in answer.hosts):
        head += " (rehearsal)" if rehearsals == total else f" ({rehearsals} of them rehearsal)"
    text = f"{head}: {', '.join(counts)}" if counts else head
    return f"{text}; {answer.seconds:.1f} s, exit code {answer.exit_code}"


def _names(group: Sequence[HostAnswer]) -> list[str]:
    return [host.name for host in group]


def _answer_of(host: HostAnswer) -> Hashable:
    """Return what hosts in one block have in common: all that is shown but moments and notes."""
    findings = tuple(_finding_of(each) for each in host.deviations)
    return host.verdict, host.rehearsal, host.reason, findings


def _finding_of(finding: Finding) -> Hashable:
    since = finding.since
    told = (what(since), who(since)) if since else None
    return finding.id, finding.found, finding.expected, finding.next_run, finding.command, told


def _block(group: Sequence[HostAnswer], style: Style, *, whole: bool) -> list[str]:
    first, names = group[0], _names(group)
    count = len(first.deviations)
    tail = f", {count} deviation{'s' if count != 1 else ''}" if count else ""
    word = WORDS[first.verdict]
    shown = style(word if first.verdict == "declared" else word.upper(), first.verdict)
    begins = counted(names, rehearsal=first.rehearsal)
    lines = _coloured(f"{begins} {word}{tail}{listed(names)}", word, shown)
    if first.reason:
        lines += _labelled("because", first.reason, indent=2)
    if whole:
        for note in first.notes:
            lines += _labelled("note", note, indent=2)
    for number, finding in enumerate(first.deviations):
        lines += _finding(finding, [host.deviations[number] for host in group], style)
    for stage in first.stages if whole else ():
        if stage.verdict == "declared" and stage.found:
            lines += _labelled(stage.name, stage.found, indent=2)
    return lines


def _coloured(text: str, word: str, shown: str) -> list[str]:
    """Wrap the line and colour the first such word in it: colours are nothing of its width."""
    lines = wrapped(text, "", "  ", whole_words=True)
    return [lines[0].replace(f" {word}", f" {shown}", 1), *lines[1:]]


def _finding(finding: Finding, same: Sequence[Finding], style: Style) -> list[str]:
    """Return a finding's lines.

    + same: that finding of each host of the group, which may be since different moments
    """
    verdict: Verdict = "restart" if finding.effect == "restart" else "drift"
    lines = [f"  {style(finding.id, verdict)}"]
    lines += _labelled("found", finding.found)
    lines += _labelled("expected", finding.expected)
    if since := finding.since:
        moments = sorted({moment(each.since) for each in same if each.since})
        when = moments[0] if len(moments) == 1 else f"{moments[0]} to {moments[-1]}"
        author = f", by {who(since)}" if who(since) else ""
        lines += _labelled("since", f"{when}: {what(since)}{author}")
    lines += _labelled("next run", finding.next_run)
    if finding.command:
        lines += _labelled("command", finding.command)
    return lines


def _labelled(label: str, text: str, indent: int = 4) -> list[str]:
    return labelled(label, text, column=_TEXT_AT, indent=indent)
