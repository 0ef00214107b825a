"""A smoke test as a person reads it: a line for each figure, or what failed, why, what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import RenderableType

from pyinfra_gpu.diagnosis.explained import Explained, explained
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict import AcrossStamp, AllReduce, Verdict, finite
from pyinfra_gpu.host_names import FEW
from pyinfra_gpu.report.screen import BLANK, Row, Shown, hosts, line
from pyinfra_gpu.text import shortened

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record

Told = AcrossStamp | Explained
"""A verdict, a failed one with what explains it; or what a stamp says of a multi-node step."""

GATE = {
    "rehearsal-1gpu": "one GPU is declared: this proves nothing about two",
    "rehearsal-cpu": "no GPU was used: this proves nothing about GPUs",
}
_GATE = "no proof"
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

_MOST = 3  # failed checks that are shown beside the one that counts
_STEPS = 5
_TAIL = 10  # lines of a log
_LONGEST = 300  # characters of a text


def last_smoke(look: Record | None) -> Explained | Unknown | None:
    """Return the verdict that a look found, that of a failed test with what explains it."""
    found = look.smoke.verdict if look else None
    return explained(found, look) if look and isinstance(found, Verdict) else found  # type: ignore[return-value]


def blocks(tests: Mapping[str, Told], *, whole: bool = False) -> list[RenderableType]:
    """Return what to show of these tests; the same is shown once.

    + whole: each with its figures, however many there are; else those of many hosts have none
    """
    in_full = whole or len(tests) <= FEW
    shown = hosts(_shown(name, test, in_full=in_full) for name, test in tests.items())
    if not in_full and any(isinstance(test, Explained) for test in tests.values()):
        shown += [BLANK, line("figures of each smoke test: -v, or the JSON report")]
    return [BLANK, *shown] if shown else []


def _shown(name: str, test: Told, *, in_full: bool) -> Shown:
    if isinstance(test, AcrossStamp):
        (_, state), *rows = across_figures(test)
    elif not test.verdict.passed:
        told = (*_when(test.verdict, in_full), *_failure(test))
        return Shown(name=name, state=_state(test.verdict), rows=told, long=True)
    else:
        verdict = test.verdict
        state = _state(verdict)
        rows = [row for row in figures(verdict) if in_full or row[0] == _GATE]
        rows += [("warn", f"{each.id}: {each.detail}") for each in verdict.having("warn")]
        if skipped := [each.id for each in verdict.having("skip")]:
            rows.append(("skipped", ", ".join(skipped)))
    shown = (Row(label=label, text=shortened(text, _LONGEST)) for label, text in rows)
    when = () if isinstance(test, AcrossStamp) else _when(test.verdict, in_full)
    return Shown(name=name, state=state, rows=(*when, *shown), long=True)


def _when(verdict: Verdict, in_full: bool) -> tuple[Row, ...]:
    text = f"{verdict.finished}, after {verdict.duration_s:.1f} s"
    return (Row(label="finished", text=text),) if in_full else ()


def _state(verdict: Verdict) -> str:
    status = "PASS, degraded" if verdict.status == "warn" else verdict.status.upper()
    if verdict.hosts:
        on = ", ".join(verdict.hosts)
        return f"multi-node step on {on} {status} ({verdict.mode})"
    passed = f"{len(verdict.having('pass'))} of {len(verdict.checks)} checks passed"
    return f"smoke test {status} ({verdict.mode}), {passed}"


def _failure(test: Explained) -> Iterator[Row]:
    """Yield what failed, the line that shows it, why, what to do, and where the logs are."""
    verdict, failed, root = test.verdict, test.verdict.failed, test.root
    if failed is None:
        return
    others = [each for each in verdict.having("fail", "unknown") if each.id != failed.id]
    told = [("failed", f"{failed.id}: {failed.sentence}")]
    told += [(each.status, f"{each.id}: {each.detail}") for each in others[:_MOST]]
    told += [("", f"and {len(others) - _MOST} more")] if len(others) > _MOST else []
    if root:
        told += [] if failed.sentence in root.line else [("log line", root.line)]
        told.append(("cause", f"{root.cause} ({root.name})"))
        steps = [f"{number}. {step}" for number, step in enumerate(root.fix[:_STEPS], 1)]
        told += zip(["what to do", *[""] * _STEPS], steps, strict=False)
        if (more := len(root.fix) - _STEPS) > 0:
            told.append(("", f"and {more} more, in the JSON report"))
    told = [(label, shortened(text, _LONGEST)) for label, text in told]
    if tail := test.tail[-_TAIL:]:
        told.append(("cause", "not known; the log ends with"))
        told += [("", f"| {line[:_LONGEST]}") for line in tail]
    told.append(("logs", verdict.logs))
    yield from (Row(label=label, text=text) for label, text in told)
    if verdict.rerun_command:
        yield Row(text="run it again there:", verbatim=verdict.rerun_command)


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
    if verdict.mode in GATE:
        yield _GATE, GATE[verdict.mode]


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
