"""What a run leaves: its figures, its exit code, the evidence of a failure, and what is printed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import collectives, files, hang
from .check import Want
from .document import EVIDENCE, AllReduce, Result, Verdict
from .journal import Journal
from .options import GPU, REHEARSAL_1GPU, REHEARSAL_CPU, Options
from .ranks import Ranks, last_lines

LABELS = {
    GPU: "NCCL, one rank a GPU",
    REHEARSAL_1GPU: "one NCCL rank on one GPU; it proves what one GPU can, and nothing about two",
    REHEARSAL_CPU: "gloo on the CPU, no GPU was used; this is not proof of a working GPU host",
}
FAILED, NOT_PROOF = 2, 3
_EXIT_CODES = {"pass": 0, "warn": 1, "fail": FAILED, "unknown": NOT_PROOF}
_SHORT = 30
_LINES, _BYTES, _ALL_BYTES = 400, 64 * 1024, 480 * 1024
"""Of one entry of the evidence, and of the file, which its reader takes up to 768 KiB."""


def exit_code(found: Verdict) -> int:
    """Return 0 pass, 1 degraded, 2 fail, 3 unknown, or not failed in a mode that proves nothing."""
    return NOT_PROOF if found.passed and found.mode != GPU else _EXIT_CODES[found.status]


def rates(want: Want, journals: Mapping[int, Journal]) -> tuple[AllReduce, ...]:
    """Return how fast the ranks reduced, as far as all of them have come."""
    facts = [each.facts["collectives"] for each in journals.values() if each.has(["collectives"])]
    if len(facts) != want.ranks or want.ranks == 1:
        return ()
    found = []
    for kind in collectives.KINDS:
        for size in collectives.sizes(want.allreduce_mib):
            tries = range(collectives.REPEATS)
            names = [collectives.name_of(kind, size, each) for each in tries]
            runs = [[each.get(name) for each in facts] for name in names]
            slowest = [max(each["seconds"] for each in run) for run in runs if None not in run]
            if seconds := min(slowest, default=None):
                rate = round(size / seconds / 1e6, 3)
                found.append(AllReduce(kind, size, seconds, rate))  # type: ignore[arg-type]
    return tuple(found)


def evidence(
    directory: Path,
    runs: Sequence[Ranks],
    first: int | None,
    kernel: Sequence[str],
    remarks: Sequence[str],
) -> None:
    """Keep the ends of all logs in one file, those of the rank that failed `first` foremost:
    whoever looks for a cause reads in order. Raises OSError where it cannot be written.
    """
    root = [] if first is None else [*_of_rank(runs[0], first)]
    stage = [*remarks, *hang.collectives(runs[0].directory)]
    found = [*root, _entry("stage", None, stage), _entry("kernel", None, kernel)]
    for run in runs:
        found.append(_entry("torchrun", None, last_lines(run.log, _LINES)))
        others = {*range(run.options.ranks_here), *run.journals}
        others -= {first} if run is runs[0] and first is not None else set()
        found += [entry for rank in sorted(others) for entry in _of_rank(run, rank)]
    kept, size = [], 0
    for each in found:
        size += len(json.dumps(each)) + 2
        if each["text"].strip() and size <= _ALL_BYTES:
            kept.append(each)
    files.write(directory / EVIDENCE, kept)


def _of_rank(run: Ranks, number: int) -> Iterator[dict[str, Any]]:
    """Yield what one rank left; one that died early has a log and no journal."""
    journal = run.journals.get(number, Journal(number))
    logs = run.logs_of(number)
    stacks, nccl = hang.stack_file(run.directory, number), f"nccl.*.{journal.pid}.log"
    yield _entry("rank", number, (journal.error or "").splitlines())
    for path in (*logs, *run.directory.glob(nccl), stacks):
        source = "rank" if path in logs else "stage" if path == stacks else "nccl"
        yield _entry(source, number, last_lines(path, _LINES))


def _entry(source: str, rank: int | None, lines: Sequence[str]) -> dict[str, Any]:
    text = "\n".join(lines[-_LINES:]).encode(errors="replace")[-_BYTES:]
    return {"source": source, "rank": rank, "text": text.decode(errors="ignore")}


def say(options: Options, text: str) -> None:
    """Print a line that begins with the mode, so that it cannot be taken for another's result.

    A reader that has gone (a lost connection) must not end the test.
    """
    try:
        print(f"[{options.mode}] {text}", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show(options: Options, result: Result) -> None:
    """Print how a check ended, with its detail where that is short."""
    seconds = "" if result.seconds is None else f"{result.seconds:.2f} s"
    detail = f"  {result.detail}" if 0 < len(result.detail) <= _SHORT else ""
    say(options, f"{result.id:<20} {result.status:<7}{seconds:>8}{detail}")
