"""What a run leaves: its figures, its exit code, the evidence of a failure, and what is printed."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import exactness, files, hang
from .document import AllReduce, Failed, Format, Link, Metrics, Rank, Result
from .group import Group, last_lines
from .journal import Journal
from .options import GPU, REHEARSAL_1GPU, REHEARSAL_CPU
from .step import loss_drop

LABELS = {
    GPU: "gpu: NCCL on all GPUs of this host, one rank a GPU",
    REHEARSAL_1GPU: "rehearsal-1gpu: one NCCL rank on one GPU; it proves what one GPU can, and "
    "nothing about two",
    REHEARSAL_CPU: "rehearsal-cpu: gloo on the CPU, no GPU was used; this is not proof of a "
    "working GPU host",
}
FAILED, NOT_PROOF = 2, 3
_EXIT_CODES = {"pass": 0, "warn": 1, "fail": FAILED, "unknown": 3}
_WIDTH = 72
"""A terminal's 80 columns, less the host's name that pyinfra puts before each line."""
_LINES, _BYTES, _ALL_BYTES = 400, 64 * 1024, 480 * 1024
"""Of one entry of the evidence, and of the file; its reader takes no more than 768 KiB."""


def proves(status: str, mode: str) -> bool:
    """Return whether the run proves that a GPU host works."""
    return mode == GPU and status in ("pass", "warn")


def exit_code(status: str, mode: str) -> int:
    """Return 0 pass, 1 degraded, 2 fail, 3 unknown, or not failed in a mode that proves nothing."""
    return NOT_PROOF if status in ("pass", "warn") and mode != GPU else _EXIT_CODES[status]


def metrics(
    journals: Mapping[int, Journal], ranks: int, afterwards: Mapping[str, Any] | None = None
) -> Metrics:
    """Return the figures, as far as all ranks have come.

    + afterwards: what the launcher found on a host with GPUs when the ranks had ended
    """
    facts = {rank: journals[rank].facts for rank in range(ranks) if rank in journals}
    if len(facts) < ranks:
        return Metrics()
    found: dict[str, Any] = {}
    if all("step" in each for each in facts.values()):
        drop = loss_drop(facts)
        found = {name: files.finite(drop[name]) for name in ("loss0", "loss1", "taylor_ratio")}
    if ranks > 1 and all("all_reduce" in each for each in facts.values()):
        found["allreduce"] = (*_all_reduces(facts),)
    for key in ("bf16_tflops", "memory_gb_s"):
        found[key] = {str(n): each["speed"][key] for n, each in facts.items() if "speed" in each}
    if all("bandwidth" in each for each in facts.values()):
        loads = [each["bandwidth"] for each in facts.values()]
        if ranks > 1:
            found["allreduce_busbw_gb_s"] = min(each["busbw_gb_s"] for each in loads)
            found["allreduce_bytes"] = loads[0]["bytes"]
        found["link"] = {
            index: Link(**{name: seen[name] for name in Link.__dataclass_fields__ if name in seen})
            for index, seen in loads[0].get("link", {}).items()
        }
    afterwards = afterwards or {}
    if "precision" in afterwards:
        found["transport"] = afterwards["transport"]["ways"]
        found["precision_best"] = afterwards["precision"]["best"]
        found["precision"] = {
            name: Format(each["status"], each["reason"], each.get("tflops"))
            for name, each in afterwards["precision"]["formats"].items()
        }
    return Metrics(**found)


def _all_reduces(facts: Mapping[int, Mapping[str, Any]]) -> Iterator[AllReduce]:
    """Yield per size the best time of the repeats, each as slow as its slowest rank."""
    for kind in exactness.KINDS:
        best: dict[int, float] = {}
        of_kind = [fact["all_reduce"].get(kind, []) for fact in facts.values()]
        for runs in zip(*of_kind, strict=False):
            slowest = max(run["seconds"] for run in runs)
            best[runs[0]["size"]] = min(best.get(runs[0]["size"], slowest), slowest)
        for size, seconds in best.items():
            yield AllReduce(kind, size, seconds, round(size / max(seconds, 1e-6) / 1e6, 3))  # type: ignore[arg-type]


def ranks(group: Group, host: str) -> tuple[Rank, ...]:
    """Return what became of each rank of a host."""
    return tuple(
        Rank(
            rank=number,
            host=host,
            pid=journal.pid,
            code=group.codes.get(number, 0 if journal.finished else None),
            finished=journal.finished,
            last_step=journal.step,
            log=group.log_of(number),
        )
        for number, journal in sorted(group.journals.items())
    )


def failed(
    result: Result | None, group: Group | None, remark: str | None, host: str
) -> Failed | None:
    """Return the check that failed first, with the end of the log to look at; None on a pass.

    + group: what ran last; remark: what else was found out about it
    """
    if result is None:
        return None
    return Failed(
        id=result.id,
        sentence="; ".join(filter(None, (result.detail, remark))),
        rank=result.rank,
        log=group.log_of(result.rank) if group else None,
        tail=tuple(group.tail(result.rank)) if group and result.status == "fail" else (),
        host=host,
    )


def evidence(
    directory: Path,
    groups: Sequence[Group],
    first: int | None,
    kernel: Sequence[str] | None,
    remarks: Sequence[str],
) -> Path:
    """Keep the ends of all logs in one file, those of the process that failed `first` foremost:
    whoever looks for a cause reads in order. Raises OSError where it cannot be written.
    """
    root: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for group in reversed(groups):
        for number in range(group.plan.count):
            is_root = group is groups[-1] and number == first
            (root if is_root else others).extend(_of_process(group, number))
    starters = [
        _entry("torchrun", None, last_lines(group.plan.directory / "torchrun.log", _LINES))
        for group in reversed(groups)
    ]
    analysed = [line for group in groups[-1:] for line in hang.collectives(group.plan.directory)]
    stage = _entry("stage", None, [*remarks, *analysed])
    kept, size = [], 0
    for each in (*root, stage, _entry("kernel", None, kernel or []), *starters, *others):
        size += len(json.dumps(each)) + 2
        if each["text"].strip() and size <= _ALL_BYTES:
            kept.append(each)
    files.write_text(directory / "evidence.json", json.dumps(kept, indent=1) + "\n")
    return directory / "evidence.json"


def _of_process(group: Group, number: int) -> Iterator[dict[str, Any]]:
    """Yield what one process left; one that died early has a log and no journal."""
    journal, directory = group.journals.get(number), group.plan.directory
    if journal and journal.error:
        yield _entry("rank", number, journal.error.splitlines())
    for log in group.logs_of(number):
        yield _entry("rank", number, last_lines(log, _LINES))
    for path in directory.glob(f"nccl.*.{journal.pid}.log") if journal else ():
        yield _entry("nccl", number, last_lines(path, _LINES))
    yield _entry("stage", number, last_lines(hang.stack_file(directory, number), _LINES))


def _entry(source: str, rank: int | None, lines: Sequence[str]) -> dict[str, Any]:
    text = "\n".join(lines[-_LINES:]).encode(errors="replace")[-_BYTES:]
    return {"source": source, "rank": rank, "text": text.decode(errors="ignore")}


class Announcer:
    """Prints lines that begin with the mode, so that no line can be taken for another's result."""

    def __init__(self, mode: str) -> None:
        self._label = f"[{mode}] "

    def quote(self, lines: Sequence[str]) -> None:
        """Print the last lines of somebody's log, cut to the width."""
        for line in lines[-15:]:
            self._print(f"{self._label}| {line}"[:_WIDTH])

    def say(self, text: str) -> None:
        """Print `text`, wrapped to the width."""
        width = _WIDTH - len(self._label)
        for line in textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False):
            self._print(self._label + line)

    def check(self, result: Result) -> None:
        """Print one check, with its detail where that fits; a failure's is printed at the end."""
        seconds = "" if result.seconds is None else f"{result.seconds:.2f} s"
        line = f"{self._label}{result.id:<23} {result.status:<5}{seconds:>8}"
        fits = 0 < len(result.detail) <= _WIDTH - len(line) - 2
        self._print(f"{line}  {result.detail}" if fits else line)

    def _print(self, line: str) -> None:
        """Print now; a reader that has gone (a lost connection) must not end the test."""
        try:
            print(line, flush=True)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
