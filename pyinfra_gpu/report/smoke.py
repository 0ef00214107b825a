"""A smoke test as a person reads it: a line for each figure, or what failed, why, what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rich.console import RenderableType

from pyinfra_gpu.diagnosis.explained import Explained
from pyinfra_gpu.facts.verdict import AcrossStamp, AllReduce, Verdict, finite
from pyinfra_gpu.host_names import FEW
from pyinfra_gpu.report.screen import BLANK, VARIES, Row, Shown, hosts, line
from pyinfra_gpu.text import shortened

_FIGURES = {
    "S1.speed": "speed",
    "S4.allreduce_exact": "exact sums",
    "S4.bandwidth": "bandwidth",
    "S4.link": "PCIe link",
    "S4.transport": "transport",
    "S4.loss_drop": "training step",
    "S4.precision": "formats",
}
"""The checks whose words are a test's figures, and what stands before these."""

_TAIL = 10  # lines of a log
_LONGEST = 300  # characters of a text


def blocks(
    tests: Mapping[str, Explained | AcrossStamp], *, whole: bool = False
) -> list[RenderableType]:
    """Return what to show of these tests; the same is shown once.

    + tests: host -> its verdict, or what its stamp says of a multi-node step
    + whole: each with its figures, however many there are; else those of many hosts have none
    """
    few = whole or len(tests) <= FEW
    shown = hosts(
        _of_stamp(name, test) if isinstance(test, AcrossStamp) else _of_test(name, test, few)
        for name, test in tests.items()
    )
    if not few:
        shown += [BLANK, line("figures of each smoke test: -v, or the JSON report")]
    return [BLANK, *shown] if shown else []


def _of_stamp(name: str, stamped: AcrossStamp) -> Shown:
    (_, state), *rows = across_figures(stamped)
    return Shown(name=name, state=state, long=True, rows=tuple(_row(*row) for row in rows))


def _of_test(name: str, test: Explained, few: bool) -> Shown:
    verdict = test.verdict
    status = "PASS, degraded" if verdict.status == "warn" else verdict.status.upper()
    passed = f"{len(verdict.having('pass'))} of {len(verdict.checks)} checks passed"
    state = f"smoke test {status} ({verdict.mode}), {passed}"
    if verdict.hosts:
        state = f"multi-node step on {', '.join(verdict.hosts)} {status} ({verdict.mode})"
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
    if gpus := Counter(gpu.name for gpu in verdict.gpus):
        counted = ", ".join(f"{count} x {name}" for name, count in gpus.items())
        yield "ranks", f"{len(verdict.ranks)} on {counted}"
    for each in verdict.having("pass"):
        if each.id in _FIGURES:
            yield _FIGURES[each.id], each.detail
    sizes = [each for each in verdict.metrics.allreduce if each.kind == "float32"]
    if largest := max(sizes, key=lambda each: each.bytes, default=None):
        yield "all-reduce", _rate(largest)
    if verdict.listens.to == "anyone":
        yield "open", f"other machines could connect while it ran: {verdict.listens.how}"
    if not verdict.proof and verdict.passed:
        yield "no proof", verdict.label


def across_figures(stamped: AcrossStamp) -> Iterator[tuple[str, str]]:
    """Yield what a stamp says of a multi-node step that passed, in the same form."""
    ran = f"PASS ({stamped.mode}), {stamped.ranks} ranks, {stamped.duration_s:.1f} s"
    yield "multi-node", f"multi-node step on {len(stamped.hosts)} hosts {ran}, {stamped.finished}"
    if (entry := stamped.all_reduce) is not None:
        yield "all-reduce", f"{_rate(entry)}, every element exact on all ranks"
    if (ratio := finite(stamped.taylor_ratio)) is not None:
        yield "training step", f"{ratio:.1%} of the decrease that the gradient predicts"
    for name, reason in stamped.open_to_others.items():
        yield "open", f"other machines could connect to {name} while the step ran: {reason}"


def _rate(entry: AllReduce) -> str:
    return f"{entry.bytes / 2**20:g} MiB: {entry.mb_per_s:.0f} MB/s"
