"""A smoke test as a person reads it: a line for each figure, or what failed, why, what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rich.console import RenderableType

from pyinfra_gpu.diagnosis.explained import Explained
from pyinfra_gpu.facts.verdict import Verdict
from pyinfra_gpu.host_names import FEW
from pyinfra_gpu.report.screen import BLANK, VARIES, Row, Shown, hosts, line
from pyinfra_gpu.text import shortened

_NO_PROOF = {
    "rehearsal-1gpu": "one GPU is declared: this proves nothing about two",
    "rehearsal-cpu": "no GPU was used: this proves nothing about GPUs",
}
_FIGURES = {
    "S1.speed": "speed",
    "S4.collectives": "collectives",
    "S4.bandwidth": "bandwidth",
    "S4.link": "PCIe link",
    "S4.transport": "transport",
    "S4.training_step": "training step",
    "S4.precision": "formats",
}
"""The checks whose words are a test's figures, and what stands before these."""

_TAIL = 10  # lines of a log
_LONGEST = 300  # characters of a text


def blocks(tests: Mapping[str, Explained], *, whole: bool = False) -> list[RenderableType]:
    """Return what to show of these tests; the same is shown once.

    + whole: each with its figures, however many there are; else those of many hosts have none
    """
    few = whole or len(tests) <= FEW
    shown = hosts(_shown(name, test, few) for name, test in tests.items())
    if not few:
        shown += [BLANK, line("figures of each smoke test: -v, or the JSON report")]
    return [BLANK, *shown] if shown else []


def _shown(name: str, test: Explained, few: bool) -> Shown:
    verdict = test.verdict
    status = "PASS, degraded" if verdict.status == "warn" else verdict.status.upper()
    passed = f"{len(verdict.having('pass'))} of {len(verdict.checks)} checks passed"
    test_of = f"multi-node step on {', '.join(verdict.hosts)}" if verdict.hosts else "smoke test"
    state = f"{test_of} {status} ({verdict.mode}), {passed}"
    when = f"{verdict.finished}, after {verdict.duration_s:.1f} s"
    rows = [Row(label="finished", text=VARIES, varies=when)]
    if verdict.passed:
        rows += [_row(*row) for row in figures(verdict)] if few else []
        rows += [_row("warn", f"{each.id}: {each.detail}") for each in verdict.having("warn")]
        if skipped := [each.id for each in verdict.having("skip")]:
            rows.append(_row("skipped", ", ".join(skipped)))
    else:
        rows += _failure(test)
    return Shown(name=name, state=state, long=True, rows=tuple(rows))


def _failure(test: Explained) -> Iterator[Row]:
    """Yield what failed, the line that shows it, why, what to do, and where the logs are."""
    verdict, failed, root = test.verdict, test.verdict.failed, test.root
    if failed is None:
        return
    yield _row("failed", f"{failed.id}: {failed.sentence}")
    for each in verdict.having("fail", "unknown"):
        if each.id != failed.id:
            yield _row(each.status, f"{each.id}: {each.detail}")
    if root:
        if failed.sentence not in root.line:
            yield _row("log line", root.line)
        yield _row("cause", f"{root.cause} ({root.name})")
        for number, step in enumerate(root.fix, 1):
            yield _row("what to do" if number == 1 else "", f"{number}. {step}")
    if tail := test.tail[-_TAIL:]:
        yield _row("cause", "not known; the log ends with")
        yield from (_row("", f"| {each}") for each in tail)
    yield _row("logs", verdict.logs)
    if verdict.rerun_command:
        yield Row(text="run it again there:", verbatim=verdict.rerun_command)


def _row(label: str, text: str) -> Row:
    return Row(label=label, text=shortened(text, _LONGEST))


def figures(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield what a test measured, in the words of its own checks, by their names."""
    if gpus := Counter(verdict.gpus):
        counted = ", ".join(f"{count} x {name}" for name, count in gpus.items())
        yield "ranks", f"{verdict.ranks} on {counted}"
    for each in verdict.having("pass"):
        if name := _FIGURES.get(each.id.replace("S6.", "S4.")):  # S6: over several hosts
            yield name, each.detail
    sizes = [each for each in verdict.allreduce if each.kind == "float32"]
    if largest := max(sizes, key=lambda each: each.bytes, default=None):
        yield "all-reduce", f"{largest.bytes / 2**20:g} MiB: {largest.mb_per_s:.0f} MB/s"
    if not verdict.others_kept_out:
        yield "open", "other machines could connect while it ran: that takes root and BPF to limit"
    if verdict.passed and verdict.mode in _NO_PROOF:
        yield "no proof", _NO_PROOF[verdict.mode]
