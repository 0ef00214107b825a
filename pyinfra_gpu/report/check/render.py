"""A check's answer for the terminal, 80 columns wide."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyinfra_gpu.drift.finding import Finding
from pyinfra_gpu.drift.history import moment, what, who
from pyinfra_gpu.report.check.answer import WORDS, Answer, HostAnswer, Verdict
from pyinfra_gpu.text import labelled, one_line, wrapped

Style = Callable[[str, Verdict], str]
"""Colours a piece of text after a verdict."""

_TEXT_AT = 14  # the column behind "next run" and its like


def render(answer: Answer, style: Style = lambda text, verdict: text) -> str:
    """Return one line for each host that is as declared, every deviation of the others, a summary.

    + style: colours text; plain by default
    """
    width = width_for([host.label for host in answer.hosts])
    lines: list[str] = []
    for host in answer.hosts:
        lines += host_lines(host, width, bool(lines and lines[-1]), style)
    return "\n".join([*lines, *closing(answer, bool(lines and lines[-1]))])


def width_for(labels: Sequence[str]) -> int:
    """Return the width of the column of hosts."""
    return min(max(map(len, labels), default=0), 30)


def host_lines(
    host: HostAnswer, width: int, behind_text: bool, style: Style = lambda text, verdict: text
) -> list[str]:
    """Return what is shown of one host: one line where it is as declared, else a block.

    + behind_text: whether the line above is not empty
    """
    block = _host(host, width, style)
    if len(block) == 1:
        return block
    return [*([""] if behind_text else []), *block, ""]


def closing(answer: Answer, behind_text: bool) -> list[str]:
    """Return what is shown below the hosts: why nothing can be told beyond them, and the summary.

    + behind_text: whether the line above is not empty
    """
    lines: list[str] = []
    for reason in answer.reasons:
        lines += wrapped(reason, "! ", "  ")
    if lines or behind_text:
        lines.append("")
    return [*lines, *wrapped(summary(answer))]


def summary(answer: Answer) -> str:
    """Return the one line that tells how many hosts are how, and the exit code."""
    total = len(answer.hosts)
    counts = [f"{count} {WORDS[verdict]}" for verdict, count in answer.counts().items()]
    head = f"{total} host{'s' if total != 1 else ''}" if total else "no host was looked at"
    if rehearsals := sum(host.rehearsal for host in answer.hosts):
        head += " (rehearsal)" if rehearsals == total else f" ({rehearsals} of them rehearsal)"
    text = f"{head}: {', '.join(counts)}" if counts else head
    return f"{text}; {answer.seconds:.1f} s, exit code {answer.exit_code}"


def _host(host: HostAnswer, width: int, style: Style) -> list[str]:
    count = len(host.deviations)
    tail = f", {count} deviation{'s' if count != 1 else ''}" if count else ""
    word = WORDS[host.verdict]
    shown = style(word if host.verdict == "declared" else word.upper(), host.verdict)
    lines = [f"{one_line(host.label).ljust(width)}  {shown}{tail}"]
    if host.reason:
        lines += _labelled("because", host.reason, indent=2)
    for note in host.notes:
        lines += _labelled("note", note, indent=2)
    for finding in host.deviations:
        lines += _finding(finding, style)
    return lines


def _finding(finding: Finding, style: Style) -> list[str]:
    verdict: Verdict = "restart" if finding.effect == "restart" else "drift"
    lines = [f"  {style(finding.id, verdict)}"]
    lines += _labelled("found", finding.found)
    lines += _labelled("expected", finding.expected)
    if since := finding.since:
        author = f", by {who(since)}" if who(since) else ""
        lines += _labelled("since", f"{moment(since)}: {what(since)}{author}")
    lines += _labelled("next run", finding.next_run)
    if finding.command:
        lines += _labelled("command", finding.command)
    return lines


def _labelled(label: str, text: str, indent: int = 4) -> list[str]:
    return labelled(label, text, column=_TEXT_AT, indent=indent)
