"""The smoke test as a person reads it: its figures, or what failed, why and what to do.

Pure: from verdicts to lines at most 80 columns wide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyinfra_gpu.diagnosis.advice import ADVICE
from pyinfra_gpu.diagnosis.explained import Explained, measured_by_the_test
from pyinfra_gpu.facts.verdict import AcrossStamp, AcrossVerdict, Verdict, finite
from pyinfra_gpu.facts.verdict_parts import AllReduce, Failed, Metrics
from pyinfra_gpu.host_names import brief
from pyinfra_gpu.text import WIDTH, bounded, command, cut, one_line, shortened, wrapped

if TYPE_CHECKING:
    from pyinfra_gpu.on_host.diagnosis.causes import Step
    from pyinfra_gpu.on_host.diagnosis.explain import Found

MOST_LINES = 24
"""For one host: a terminal's height. What does not fit is on the host, and in the JSON report."""

_REST = "  ... the rest is in the JSON report and on the host"
_OTHERS_SHOWN = 3
"""Failed checks beside the one that counts."""
GATE = {
    "rehearsal-1gpu": "one GPU is declared, and what one can prove is proven: the two-GPU gate is"
    " not satisfied, and nothing is proven about two GPUs",
    "rehearsal-cpu": "no GPU was used: this proves nothing about GPUs",
}

Across = AcrossStamp | Explained
"""What a host has to say of a step across hosts: of one that passed, its stamp's part."""


def lines(name: str, test: Explained | None) -> list[str]:
    """Return what to show of a host's own test; empty where there was none."""
    if test is None or not isinstance(test.verdict, Verdict):
        return []
    verdict = test.verdict
    if not verdict.passed:
        return bounded([*_head(name, verdict), *_failure(test)], MOST_LINES, _REST)
    shown = [line for text in figures(verdict) for line in wrapped(text, "  ", "    ")]
    return bounded([*_head(name, verdict), *shown, *_warnings(verdict)], MOST_LINES, _REST)


def across_lines(hosts: Mapping[str, Across | None]) -> list[str]:
    """Return what to show of the step across hosts (host -> what it has to say of it).

    All hosts of a group say the same of a step that passed, and of a failed one mostly: what is
    said twice is shown once.
    """
    shown: dict[tuple[str, ...], list[str]] = {}
    for name, value in hosts.items():
        if value is not None:
            shown.setdefault(tuple(_across(value)), []).append(name)
    result: list[str] = []
    for (first, *others), names in shown.items():
        said = wrapped(f"{brief(names)}: {first}", "", "  ", whole_words=True)
        result += ["", *said, *others]
    return result


def _across(value: Across) -> Iterator[str]:
    """Yield one sentence, and lines."""
    if isinstance(value, Explained):
        if isinstance(value.verdict, AcrossVerdict):
            yield _head_across(value.verdict)
        yield from _failure(value)
        return
    first, *others = across_figures(value)
    yield first
    for each in others:
        yield from wrapped(each, "  ", "    ")


def across_figures(stamped: AcrossStamp) -> Iterator[str]:
    """Yield what a stamp says of a step across hosts that passed, a sentence each."""
    yield (
        f"step across {len(stamped.hosts)} hosts PASS ({stamped.mode}), {stamped.ranks} ranks,"
        f" {stamped.duration_s:.1f} s, {stamped.finished}"
    )
    if stamped.all_reduce is not None:
        yield f"{_all_reduce(stamped.all_reduce)}, every element exact on all ranks"
    if (ratio := finite(stamped.taylor_ratio)) is not None:
        yield f"one training step: {ratio:.3f} of the drop its gradient predicts"
    for name, why in stamped.open_to_others.items():
        yield f"while it ran, others could connect to {name}: {why}"


def _head_across(verdict: AcrossVerdict) -> str:
    return (
        f"step across {', '.join(verdict.hosts)} {verdict.status.upper()} ({verdict.mode}),"
        f" {verdict.duration_s:.1f} s"
    )


def _head(name: str, verdict: Verdict) -> list[str]:
    status = "PASS, degraded" if verdict.status == "warn" else verdict.status.upper()
    head = (
        f"{name}: smoke test {status} ({verdict.mode}),"
        f" {len(verdict.having('pass'))} of {len(verdict.checks)} checks passed in"
        f" {verdict.duration_s:.1f} s, {verdict.finished}"
    )
    return wrapped(head, "", "  ")


# -- a pass


def figures(verdict: Verdict) -> list[str]:
    """Return a test's figures, a sentence each, as far as it came."""
    metrics = verdict.metrics
    texts = [*_gpus(verdict), *_bandwidth(verdict), *_step(metrics)]
    texts += [*_precision(metrics), *_stages(verdict), *_open(verdict)]
    if gate := GATE.get(verdict.mode):
        texts.append(gate)
    return texts


def _gpus(verdict: Verdict) -> Iterator[str]:
    names = [gpu.name for gpu in verdict.gpus]
    if names:
        counted = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        yield f"{len(verdict.ranks)} ranks on {counted}"


def _bandwidth(verdict: Verdict) -> Iterator[str]:
    """One line: how fast, over what, by which way."""
    metrics = verdict.metrics
    bus = finite(metrics.allreduce_busbw_gb_s)
    exact = verdict.check("S4.allreduce_exact")
    proven = ", every element exact" if exact and exact.status == "pass" else ""
    if bus is not None:
        size = metrics.allreduce_bytes
        payload = f" of {size / 2**20:g} MiB" if size else ""
        reduced = f"all-reduce{payload}: {bus:.1f} GB/s bus bandwidth{proven}"
        yield "; ".join([reduced, *_links(metrics)])
        return
    sizes = [each for each in metrics.allreduce if each.kind == "float32"]
    if sizes:
        largest = max(sizes, key=lambda each: each.bytes)
        yield f"{_all_reduce(largest, len(verdict.ranks))}{proven}"


def _all_reduce(entry: AllReduce, ranks: int = 0) -> str:
    among = f" among {ranks} ranks" if ranks else ""
    return f"all-reduce of {entry.bytes / 2**20:g} MiB{among}: {entry.mb_per_s:.0f} MB/s"


def _links(metrics: Metrics) -> Iterator[str]:
    texts = [
        f"PCIe gen {each.gen} x{each.width}"
        for each in metrics.link.values()
        if each.gen and each.width
    ]
    if texts:
        yield f"link under load {', '.join(dict.fromkeys(texts))}"
    if metrics.transport:
        yield f"transport {', '.join(metrics.transport)}"


def _step(metrics: Metrics) -> Iterator[str]:
    before, after = finite(metrics.loss0), finite(metrics.loss1)
    ratio = finite(metrics.taylor_ratio)
    if before is not None and after is not None and ratio is not None:
        yield (
            f"one training step: loss {before:.4f} -> {after:.4f},"
            f" {ratio:.3f} of the drop its gradient predicts"
        )


def _precision(metrics: Metrics) -> Iterator[str]:
    by_status: dict[str, list[str]] = {}
    for name, entry in metrics.precision.items():
        by_status.setdefault(entry.status, []).append(name)
    if not by_status:
        return
    shown = "; ".join(f"{', '.join(names)} {status}" for status, names in by_status.items())
    best = metrics.precision_best
    fallback = f"; fall back to {best}" if best and set(by_status) != {"native"} else ""
    yield f"number formats: {shown}{fallback}"


def _open(verdict: Verdict) -> Iterator[str]:
    if verdict.listens is not None and verdict.listens.to == "anyone":
        yield f"while it ran, others could connect to it: {verdict.listens.how}"


def _stages(verdict: Verdict) -> Iterator[str]:
    times = [f"{each.id} {each.seconds:.1f}" for each in verdict.stages if each.seconds is not None]
    if times:
        yield f"seconds by stage: {', '.join(times)}"


def warnings(verdict: Verdict) -> list[str]:
    """Return the warnings of a degraded pass, a sentence each."""
    return [f"{check.id}: {shortened(check.detail, 3 * WIDTH)}" for check in verdict.having("warn")]


def _warnings(verdict: Verdict) -> list[str]:
    """Return each warning, and how many checks did not apply or could not be made."""
    shown = []
    for text in warnings(verdict):
        shown += wrapped(f"WARN {text}", "  ", "    ")
    if skipped := [check.id for check in verdict.having("skip")]:
        shown += wrapped(f"not made here: {', '.join(skipped)}", "  ", "    ")
    return shown


# -- a failure


def _failure(test: Explained) -> list[str]:
    """Return what failed, the line that shows it, why, what to do, and where the rest is."""
    verdict, failed = test.verdict, test.verdict.failed
    if failed is None:
        return []
    shown = wrapped(f"FAIL {failed.id}: {failed.sentence}", "  ", "    ")
    others = [each for each in verdict.having("fail", "unknown") if each.id != failed.id]
    for check in others[:_OTHERS_SHOWN]:
        text = f"{check.status.upper()} {check.id}: {check.detail}"
        shown += wrapped(shortened(text, 2 * WIDTH), "  ", "    ")
    where = _where(verdict)
    room = MOST_LINES - 2 - len(shown) - len(where)
    if root := test.root:
        shown += _explained(root, room)
    elif measured_by_the_test(verdict):  # the ranks' logs say nothing of it
        shown += _steps(ADVICE.get(failed.id, ()), room)
    else:
        shown += _tail(test, failed, room)
    return shown + where


def _explained(found: Found, room: int) -> list[str]:
    """Return why it happens, the line that shows it, and as many steps as there is room for."""
    from pyinfra_gpu.on_host.diagnosis import writing

    shown = [f"  {line}" for line in writing.cause(found, width=WIDTH - 2) if line]
    return shown + _steps(found.fix, room - len(shown))


def _steps(steps: Sequence[Step], room: int) -> list[str]:
    from pyinfra_gpu.on_host.diagnosis import writing

    shown: list[str] = []
    for number, each in enumerate(writing.steps(steps), 1):
        if number > 1 and len(shown) + len(each) >= room:
            more = len(steps) - number + 1
            shown.append(f"  and {more} more step{'s' if more > 1 else ''}, in the JSON report")
            break
        shown += each
    return shown


def _tail(test: Explained, failed: Failed, room: int) -> list[str]:
    """Return the last lines where nothing known explains the failure; the last one whole."""
    tail = failed.tail or (tuple(test.diagnosis.unexplained.splitlines()) if test.diagnosis else ())
    tail = tuple(line for line in tail if line.strip(" ^~|"))  # Python underlines with these
    if not tail:
        return []
    known = ["  no known failure explains it; the last lines:"] if test.diagnosis else []
    last = wrapped(shortened(tail[-1], 4 * WIDTH), "  | ", "  |   ")
    before = tail[-max(1, min(10, room - len(last))) : -1]
    return known + [cut(f"  | {line}") for line in before] + last


def _where(verdict: Verdict | AcrossVerdict) -> list[str]:
    shown = [f"  all there is: {one_line(verdict.logs)} there"]
    if isinstance(verdict, Verdict):
        shown.append("  again, by hand there:")
        shown += command(verdict.rerun_command, "    ")
    return shown
