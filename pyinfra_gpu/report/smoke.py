"""The smoke test as a person reads it: its figures, or what failed, why and what to do."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pyinfra_gpu.diagnosis.advice import ADVICE
from pyinfra_gpu.diagnosis.explained import Explained, explained, measured_by_the_test
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict import (
    AcrossStamp,
    AcrossVerdict,
    AllReduce,
    AnyVerdict,
    Verdict,
    finite,
)
from pyinfra_gpu.host_names import FEW, brief
from pyinfra_gpu.report.screen import BLANK, Sentence, alike, safe
from pyinfra_gpu.text import one_line, shortened

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record

Tested = Explained
"""A verdict, that of a failed test with what explains it."""

Across = AcrossStamp | Tested
"""What a host has to say of a multi-node step: of one that passed, its stamp's part."""

GATE = {
    "rehearsal-1gpu": "one GPU is declared: this proves nothing about two",
    "rehearsal-cpu": "no GPU was used: this proves nothing about GPUs",
}
_OTHERS = 3  # failed checks that are shown beside the one that counts
_STEPS = 5
_TAIL = 10  # lines of a log
_LONGEST = 300  # characters of a sentence


# -- why a test failed


@dataclass(frozen=True)
class Why:
    """Why a test failed, as far as it is known.

    + name: of what is known to cause it, "" where nothing known does
    + seen: lines of the log that show it; + fix: what to do, a step each
    + tail: the log's last lines, where nothing known explains the failure
    """

    name: str = ""
    cause: str = ""
    seen: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()


def why(test: Tested) -> Why:
    """Return what is known of a failure."""
    failed, root = test.verdict.failed, test.root
    if failed is None:
        return Why()
    if root is not None:
        return Why(root.name, root.cause, (root.line,), tuple(map(str, root.fix)))
    if measured_by_the_test(test.verdict):  # the ranks' logs say nothing of it
        return Why(fix=tuple(map(str, ADVICE.get(failed.id, ()))))
    tail = failed.tail or (tuple(test.diagnosis.unexplained.splitlines()) if test.diagnosis else ())
    return Why(tail=tuple(line for line in tail if line.strip(" ^~|")))  # Python underlines so


def last_smoke(look: Record | None) -> Tested | Unknown | None:
    """Return the verdict that a look found, that of a failed test with what explains it."""
    found = look.smoke.verdict if look else None
    return explained(found, look) if look and isinstance(found, Verdict) else found  # type: ignore[return-value]


# -- a host's own test


def blocks(tests: Mapping[str, Tested], *, whole: bool = False) -> list[RenderableType]:
    """Return what to show of the hosts' own tests, an empty line before each.

    + whole: each in full, however many there are; else many hosts with the same result are shown
      once, without their figures
    """
    own = {name: test for name, test in tests.items() if isinstance(test.verdict, Verdict)}
    if whole or len(own) <= FEW:
        return [block for name, test in own.items() for block in (BLANK, *_shown([name], test))]
    shown: list[RenderableType] = []
    for names in alike(own, lambda name: _same(own[name])):
        shown += [BLANK, *_shown(names, own[names[0]], in_full=False)]
    return [*shown, BLANK, Text("figures of each smoke test: -v, or the JSON report")]


def _shown(names: Sequence[str], test: Tested, *, in_full: bool = True) -> list[RenderableType]:
    """Return what to show of hosts whose tests ended alike."""
    verdict = test.verdict
    assert isinstance(verdict, Verdict)  # noqa: S101 - see `blocks`
    duration = f" in {verdict.duration_s:.1f} s, {verdict.finished}" if in_full else ""
    title = Sentence(f"{brief(names)}: {_result(verdict)}{duration}")
    if not verdict.passed:
        again = [_whole(f"  run it again on {names[0]}:"), _whole(f"    {verdict.rerun_command}")]
        return [title, *_failure(test), *again]
    texts = figures(verdict) if in_full else [GATE[verdict.mode]] if verdict.mode in GATE else []
    texts += [f"WARN {text}" for text in warnings(verdict)]
    if skipped := [check.id for check in verdict.having("skip")]:
        texts.append(f"skipped: {', '.join(skipped)}")
    return [title, *(Sentence(text, "  ", "    ") for text in texts)]


def _same(test: Tested) -> Hashable:
    """Return what makes the tests of two hosts end alike."""
    return _result(test.verdict), tuple(warnings(test.verdict)), _failure_of(test)


def _result(verdict: AnyVerdict) -> str:
    status = "PASS, degraded" if verdict.status == "warn" else verdict.status.upper()
    passed = f"{len(verdict.having('pass'))} of {len(verdict.checks)} checks passed"
    return f"smoke test {status} ({verdict.mode}), {passed}"


def warnings(verdict: AnyVerdict) -> list[str]:
    """Return the warnings of a degraded pass, a sentence each."""
    return [f"{each.id}: {shortened(each.detail, _LONGEST)}" for each in verdict.having("warn")]


def figures(verdict: Verdict) -> list[str]:
    """Return a test's figures, a sentence each, as far as it came."""
    metrics, names = verdict.metrics, [gpu.name for gpu in verdict.gpus]
    texts: list[str] = []
    if names:
        gpus = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        texts.append(f"{len(verdict.ranks)} ranks on {gpus}")
    texts += _bandwidth(verdict)
    before, after, ratio = map(finite, (metrics.loss0, metrics.loss1, metrics.taylor_ratio))
    if before is not None and after is not None and ratio is not None:
        texts.append(f"one training step: loss {before:.4f} -> {after:.4f}, {_drop(ratio)}")
    works = {name: each.status for name, each in metrics.precision.items()}
    if works:
        formats = [
            f"{', '.join(each)} {works[each[0]]}" for each in alike(works, works.__getitem__)
        ]
        if metrics.precision_best and set(works.values()) != {"native"}:
            formats.append(f"recommended: {metrics.precision_best}")
        texts.append(f"number formats: {'; '.join(formats)}")
    times = [f"{each.id} {each.seconds:.1f}" for each in verdict.stages if each.seconds is not None]
    texts += [f"seconds by stage: {', '.join(times)}"] if times else []
    if verdict.listens.to == "anyone":
        texts.append(f"other machines could connect while it ran: {verdict.listens.how}")
    return [*texts, GATE[verdict.mode]] if verdict.mode in GATE else texts


def _bandwidth(verdict: Verdict) -> Iterator[str]:
    """Yield how fast an all-reduce was, over what, and by which way."""
    metrics, exact = verdict.metrics, verdict.check("S4.allreduce_exact")
    proven = ", every element exact" if exact and exact.status == "pass" else ""
    rate = finite(metrics.allreduce_busbw_gb_s)
    if rate is not None:
        size = f" of {metrics.allreduce_bytes / 2**20:g} MiB" if metrics.allreduce_bytes else ""
        parts = [f"all-reduce{size}: {rate:.1f} GB/s bus bandwidth{proven}"]
        links = [f"gen {e.gen} x{e.width}" for e in metrics.link.values() if e.gen and e.width]
        parts += [f"PCIe under load: {', '.join(dict.fromkeys(links))}"] if links else []
        parts += [f"transport {', '.join(metrics.transport)}"] if metrics.transport else []
        yield "; ".join(parts)
    elif sizes := [each for each in metrics.allreduce if each.kind == "float32"]:
        largest = max(sizes, key=lambda each: each.bytes)
        yield f"{_all_reduce(largest, f' among {len(verdict.ranks)} ranks')}{proven}"


def _all_reduce(entry: AllReduce, among: str = "") -> str:
    return f"all-reduce of {entry.bytes / 2**20:g} MiB{among}: {entry.mb_per_s:.0f} MB/s"


def _drop(ratio: float) -> str:
    return f"{ratio:.1%} of the decrease that the gradient predicts"


# -- a multi-node step


def across_blocks(hosts: Mapping[str, Across | None]) -> list[RenderableType]:
    """Return what to show of the multi-node step; what several hosts say alike is shown once.

    + hosts: host -> what it has to say of it
    """
    shown: list[RenderableType] = []
    said = {name: value for name, value in hosts.items() if value is not None}
    for names in alike(said, lambda name: _alike_across(said[name])):
        value = said[names[0]]
        if isinstance(value, AcrossStamp):
            first, *others = across_figures(value)
            rest: list[RenderableType] = [Sentence(text, "  ", "    ") for text in others]
        else:
            first, rest = _across_title(value.verdict), _failure(value)
        shown += [BLANK, Sentence(f"{brief(names)}: {first}"), *rest]
    return shown


def _alike_across(value: Across) -> tuple[object, ...]:
    if isinstance(value, AcrossStamp):
        return tuple(across_figures(value))
    return (_across_title(value.verdict), *_failure_of(value))


def _across_title(verdict: AnyVerdict) -> str:
    names = ", ".join(verdict.hosts) if isinstance(verdict, AcrossVerdict) else verdict.host
    status = f"{verdict.status.upper()} ({verdict.mode}), {verdict.duration_s:.1f} s"
    return f"multi-node step on {names} {status}"


def across_figures(stamped: AcrossStamp) -> Iterator[str]:
    """Yield what a stamp says of a multi-node step that passed, a sentence each."""
    yield (
        f"multi-node step on {len(stamped.hosts)} hosts PASS ({stamped.mode}),"
        f" {stamped.ranks} ranks, {stamped.duration_s:.1f} s, {stamped.finished}"
    )
    if stamped.all_reduce is not None:
        yield f"{_all_reduce(stamped.all_reduce)}, every element exact on all ranks"
    if (ratio := finite(stamped.taylor_ratio)) is not None:
        yield f"one training step: {_drop(ratio)}"
    for name, reason in stamped.open_to_others.items():
        yield f"other machines could connect to {name} while the step ran: {reason}"


# -- a failure


def _failure_of(test: Tested) -> tuple[object, ...]:
    """Return what makes the failures of two hosts the same one."""
    failed = test.verdict.failed
    return (failed and (failed.id, failed.sentence.replace(test.verdict.host, "")), why(test))


def _failure(test: Tested) -> list[RenderableType]:
    """Return what failed, the line that shows it, why, what to do, and where the rest is."""
    verdict, failed, known = test.verdict, test.verdict.failed, why(test)
    if failed is None:
        return []
    others = [each for each in verdict.having("fail", "unknown") if each.id != failed.id]
    texts = [f"FAIL {failed.id}: {shortened(failed.sentence, _LONGEST)}"]
    texts += [
        f"{e.status.upper()} {e.id}: {shortened(e.detail, _LONGEST // 2)}" for e in others[:_OTHERS]
    ]
    texts += [f"and {len(others) - _OTHERS} more failed"] if len(others) > _OTHERS else []
    texts += [f"log line: {shortened(line, _LONGEST // 2)}" for line in known.seen]
    if known.name:
        texts.append(f"cause ({known.name}): {shortened(known.cause, _LONGEST)}")
    shown: list[RenderableType] = [Sentence(text, "  ", "    ") for text in texts]
    if known.fix:
        steps = Table.grid(expand=True)
        steps.add_column(width=5, no_wrap=True)
        steps.add_column(ratio=1, overflow="fold")
        for number, text in enumerate(known.fix[:_STEPS], 1):
            steps.add_row(f"{number:3}.", safe(shortened(text, _LONGEST)))
        if (more := len(known.fix) - _STEPS) > 0:
            steps.add_row("", f"and {more} more, in the JSON report")
        shown.append(steps)
    elif known.tail:
        shown.append(Text("  the cause is not known; the last lines of the log:"))
        shown += [_cut(f"  | {line}") for line in known.tail[-_TAIL:-1]]
        shown.append(Sentence(shortened(known.tail[-1], _LONGEST), "  | ", "  |   "))
    return [*shown, _whole(f"  logs on the host: {verdict.logs}")]


def _whole(line: str) -> Text:
    """Return a line that is to be copied: the terminal itself breaks it, and no blank is added."""
    indent = len(line) - len(line.lstrip())
    return Text(" " * indent + one_line(line), no_wrap=True, overflow="ignore")


def _cut(line: str) -> Text:
    return Text("  " + one_line(line), no_wrap=True, overflow="ellipsis")
