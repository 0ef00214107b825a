"""A smoke test as a person reads it: a line for each figure, or what failed, why, what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import RenderableType

from pyinfra_gpu.diagnosis.explained import Explained, explained
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict import AcrossStamp, AcrossVerdict, AnyVerdict, Verdict, finite
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
        state, *texts = across_figures(test)
    else:
        verdict = test.verdict
        state, texts = _state(verdict, in_full), []
        if not verdict.passed:
            return Shown(name=name, state=state, rows=tuple(_failure(test)), long=True)
        if isinstance(verdict, Verdict):
            texts = [*(figures(verdict) if in_full else _gate(verdict))]
        texts += [f"WARN {each.id}: {each.detail}" for each in verdict.having("warn")]
        if skipped := [each.id for each in verdict.having("skip")]:
            texts.append(f"skipped: {', '.join(skipped)}")
    rows = tuple(Row(text=shortened(text, _LONGEST)) for text in texts)
    return Shown(name=name, state=state, rows=rows, long=True)


def _gate(verdict: Verdict) -> list[str]:
    return [GATE[verdict.mode]] if verdict.mode in GATE else []


def _state(verdict: AnyVerdict, in_full: bool) -> str:
    status = "PASS, degraded" if verdict.status == "warn" else verdict.status.upper()
    if isinstance(verdict, AcrossVerdict):
        on = ", ".join(verdict.hosts)
        return f"multi-node step on {on} {status} ({verdict.mode}), {verdict.duration_s:.1f} s"
    passed = f"{len(verdict.having('pass'))} of {len(verdict.checks)} checks passed"
    when = f" in {verdict.duration_s:.1f} s, {verdict.finished}" if in_full else ""
    return f"smoke test {status} ({verdict.mode}), {passed}{when}"


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
    if isinstance(verdict, Verdict):
        yield Row(text="run it again there:", verbatim=verdict.rerun_command)


def figures(verdict: Verdict) -> Iterator[str]:
    """Yield a test's figures, a line each, as far as it came."""
    metrics = verdict.metrics
    if gpus := Counter(gpu.name for gpu in verdict.gpus):
        counted = ", ".join(f"{count} x {name}" for name, count in gpus.items())
        yield f"{len(verdict.ranks)} ranks on {counted}"
    yield from _bandwidth(verdict)
    before, after, ratio = map(finite, (metrics.loss0, metrics.loss1, metrics.taylor_ratio))
    if before is not None and after is not None and ratio is not None:
        yield f"one training step: loss {before:.4f} -> {after:.4f}, {_drop(ratio)}"
    works: dict[str, list[str]] = {}
    for name, each in metrics.precision.items():
        works.setdefault(each.status, []).append(name)
    formats = [f"{', '.join(names)} {status}" for status, names in works.items()]
    if metrics.precision_best and set(works) != {"native"}:
        formats.append(f"recommended: {metrics.precision_best}")
    if works:
        yield f"number formats: {'; '.join(formats)}"
    if verdict.listens.to == "anyone":
        yield f"other machines could connect while it ran: {verdict.listens.how}"
    yield from _gate(verdict)


def _bandwidth(verdict: Verdict) -> Iterator[str]:
    """Yield how fast an all-reduce was, over what, and by which way."""
    metrics = verdict.metrics
    check = verdict.check("S4.allreduce_exact")
    exact = ", every element exact" if check and check.status == "pass" else ""
    sizes = [each for each in metrics.allreduce if each.kind == "float32"]
    if (rate := finite(metrics.allreduce_busbw_gb_s)) is not None:
        size = f" of {metrics.allreduce_bytes / 2**20:g} MiB" if metrics.allreduce_bytes else ""
        yield f"all-reduce{size}: {rate:.1f} GB/s bus bandwidth{exact}"
    elif sizes:
        largest = max(sizes, key=lambda each: each.bytes)
        among = f" among {len(verdict.ranks)} ranks"
        yield f"{_all_reduce(largest.bytes, largest.mb_per_s, among)}{exact}"
    links = [f"gen {e.gen} x{e.width}" for e in metrics.link.values() if e.gen and e.width]
    if links:
        yield f"PCIe under load: {', '.join(dict.fromkeys(links))}"
    if metrics.transport:
        yield f"transport: {', '.join(metrics.transport)}"


def across_figures(stamped: AcrossStamp) -> Iterator[str]:
    """Yield what a stamp says of a multi-node step that passed, a line each."""
    yield (
        f"multi-node step on {len(stamped.hosts)} hosts PASS ({stamped.mode}),"
        f" {stamped.ranks} ranks, {stamped.duration_s:.1f} s, {stamped.finished}"
    )
    if (entry := stamped.all_reduce) is not None:
        yield f"{_all_reduce(entry.bytes, entry.mb_per_s)}, every element exact on all ranks"
    if (ratio := finite(stamped.taylor_ratio)) is not None:
        yield f"one training step: {_drop(ratio)}"
    for name, reason in stamped.open_to_others.items():
        yield f"other machines could connect to {name} while the step ran: {reason}"


def _all_reduce(size: int, rate: float, among: str = "") -> str:
    return f"all-reduce of {size / 2**20:g} MiB{among}: {rate:.0f} MB/s"


def _drop(ratio: float) -> str:
    return f"{ratio:.1%} of the decrease that the gradient predicts"
