"""A smoke test as a person reads it: a line for each figure, or what failed, why, what to do."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from pyinfra_gpu.diagnosis.advice import ADVICE
from pyinfra_gpu.diagnosis.explained import Explained, explained, measured_by_the_test
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict import AcrossStamp, AcrossVerdict, AnyVerdict, Verdict, finite
from pyinfra_gpu.host_names import FEW, brief
from pyinfra_gpu.report.screen import BLANK, Sentence, alike
from pyinfra_gpu.text import one_line, shortened

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
_LONGEST = 300  # characters of a sentence


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


def why(test: Explained) -> Why:
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


def last_smoke(look: Record | None) -> Explained | Unknown | None:
    """Return the verdict that a look found, that of a failed test with what explains it."""
    found = look.smoke.verdict if look else None
    return explained(found, look) if look and isinstance(found, Verdict) else found  # type: ignore[return-value]


def blocks(tests: Mapping[str, Told], *, whole: bool = False) -> list[RenderableType]:
    """Return what to show of these tests, an empty line before each; the same is shown once.

    + whole: each with its figures, however many there are; else those of many hosts have none
    """
    in_full = whole or len(tests) <= FEW
    told = {name: list(_told(test, in_full=in_full)) for name, test in tests.items()}

    def same(name: str) -> Hashable:
        title, *others = (each.text for each in told[name])
        if isinstance(tests[name], Explained):  # a failure may name the host that tells it
            others = [text.replace(name, "") for text in others]
        return title, tuple(others)

    shown: list[RenderableType] = []
    for names in alike(told, same):
        first, *others = told[names[0]]
        title = Sentence(f"{brief(names)}: {first.text}")
        shown += [BLANK, title, *others, *_where(tests[names[0]], names[0])]
    if not in_full and any(isinstance(test, Explained) for test in tests.values()):
        shown += [BLANK, Text("figures of each smoke test: -v, or the JSON report")]
    return shown


def _told(test: Told, *, in_full: bool) -> Iterator[Sentence]:
    """Yield the title and what follows it."""
    texts: list[str] = []
    if isinstance(test, AcrossStamp):
        first, *texts = across_figures(test)
        yield Sentence(first)
    else:
        verdict = test.verdict
        yield Sentence(_title(verdict, in_full=in_full))
        if not verdict.passed:
            yield from _failure(test)
            return
        if isinstance(verdict, Verdict):
            texts += figures(verdict) if in_full else _gate(verdict)
        texts += [f"WARN {each.id}: {each.detail}" for each in verdict.having("warn")]
        if skipped := [each.id for each in verdict.having("skip")]:
            texts.append(f"skipped: {', '.join(skipped)}")
    yield from (Sentence(shortened(text, _LONGEST), "  ", "    ") for text in texts)


def _title(verdict: AnyVerdict, *, in_full: bool) -> str:
    status = "PASS, degraded" if verdict.status == "warn" else verdict.status.upper()
    if isinstance(verdict, AcrossVerdict):
        on = ", ".join(verdict.hosts)
        return f"multi-node step on {on} {status} ({verdict.mode}), {verdict.duration_s:.1f} s"
    passed = f"{len(verdict.having('pass'))} of {len(verdict.checks)} checks passed"
    when = f" in {verdict.duration_s:.1f} s, {verdict.finished}" if in_full else ""
    return f"smoke test {status} ({verdict.mode}), {passed}{when}"


def _gate(verdict: Verdict) -> list[str]:
    return [GATE[verdict.mode]] if verdict.mode in GATE else []


def figures(verdict: Verdict) -> Iterator[str]:
    """Yield a test's figures, a line each, as far as it came."""
    metrics, gpus = verdict.metrics, [gpu.name for gpu in verdict.gpus]
    if gpus:
        counted = ", ".join(f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus))
        yield f"{len(verdict.ranks)} ranks on {counted}"
    yield from _bandwidth(verdict)
    before, after, ratio = map(finite, (metrics.loss0, metrics.loss1, metrics.taylor_ratio))
    if before is not None and after is not None and ratio is not None:
        yield f"one training step: loss {before:.4f} -> {after:.4f}, {_drop(ratio)}"
    works = {name: each.status for name, each in metrics.precision.items()}
    formats = [f"{', '.join(e)} {works[e[0]]}" for e in alike(works, works.__getitem__)]
    if metrics.precision_best and set(works.values()) != {"native"}:
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
    links = [
        f"gen {each.gen} x{each.width}" for each in metrics.link.values() if each.gen and each.width
    ]
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


def _failure(test: Explained) -> Iterator[Sentence]:
    """Yield what failed, the line that shows it, why, and what to do."""
    verdict, failed, known = test.verdict, test.verdict.failed, why(test)
    if failed is None:
        return
    others = [each for each in verdict.having("fail", "unknown") if each.id != failed.id]
    texts = [f"FAIL {failed.id}: {failed.sentence}"]
    texts += [f"{each.status.upper()} {each.id}: {each.detail}" for each in others[:_MOST]]
    texts += [f"and {len(others) - _MOST} more failed"] if len(others) > _MOST else []
    texts += [f"log line: {line}" for line in known.seen]
    texts += [f"cause ({known.name}): {known.cause}"] if known.name else []
    if known.tail:
        texts.append("the cause is not known; the last lines of the log:")
    yield from (Sentence(shortened(text, _LONGEST), "  ", "    ") for text in texts)
    for number, text in enumerate(known.fix[:_STEPS], 1):
        yield Sentence(shortened(text, _LONGEST), f"{number:3}. ", "     ")
    if (more := len(known.fix) - _STEPS) > 0:
        yield Sentence(f"and {more} more, in the JSON report", "     ")
    for line in known.tail[-_TAIL:]:
        indent = " " * min(len(line) - len(line.lstrip()), 20)
        yield Sentence(shortened(line, _LONGEST), f"  | {indent}", f"  |   {indent}")


def _where(test: Told, name: str) -> Iterator[Text]:
    """Yield where a failed test's logs are and how to run it again, to be copied: never broken."""
    if isinstance(test, Explained) and not test.verdict.passed:
        yield _whole("  ", f"logs on the host: {test.verdict.logs}")
        if isinstance(test.verdict, Verdict):
            yield _whole("  ", f"run it again on {name}:")
            yield _whole("    ", test.verdict.rerun_command)


def _whole(indent: str, text: str) -> Text:
    return Text(f"{indent}{one_line(text)}", no_wrap=True, overflow="ignore")
