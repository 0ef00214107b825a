"""What a run leaves: its figures, its exit code, the evidence of a failure, and what is printed."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from . import collectives, files, hang
from .check import Want
from .document import AllReduce, Metrics, Result
from .journal import Journal
from .options import GPU, REHEARSAL_1GPU, REHEARSAL_CPU
from .ranks import Ranks, last_lines
from .step import loss_drop

LABELS = {
    GPU: "NCCL, one rank a GPU",
    REHEARSAL_1GPU: "one NCCL rank on one GPU; it proves what one GPU can, and nothing about two",
    REHEARSAL_CPU: "gloo on the CPU, no GPU was used; this is not proof of a working GPU host",
}
FAILED, NOT_PROOF = 2, 3
_EXIT_CODES = {"pass": 0, "warn": 1, "fail": FAILED, "unknown": 3}
_WIDTH = 72
"""A terminal's 80 columns, less the host's name that pyinfra puts before each line."""
_LINES, _BYTES, _ALL_BYTES = 400, 64 * 1024, 480 * 1024
"""Of one entry of the evidence, and of the file, which its reader takes up to 768 KiB."""


def now() -> str:
    """Return the time as documents have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def exit_code(status: str, mode: str) -> int:
    """Return 0 pass, 1 degraded, 2 fail, 3 unknown, or not failed in a mode that proves nothing."""
    return NOT_PROOF if status in ("pass", "warn") and mode != GPU else _EXIT_CODES[status]


def metrics(want: Want, journals: Mapping[int, Journal]) -> Metrics:
    """Return the figures, as far as all ranks have come."""
    facts = {rank: each.facts for rank, each in sorted(journals.items())}
    complete = len(facts) == want.ranks
    ratio = None
    if complete and all("step" in each for each in facts.values()):
        ratio = files.finite(loss_drop(facts)[1])
    if not complete or want.ranks == 1 or any("collectives" not in each for each in facts.values()):
        return Metrics(ratio)
    rates, kinds = [], product(collectives.KINDS, collectives.sizes(want.allreduce_mib))
    for kind, size in kinds:
        names = [collectives.name_of(kind, size, each) for each in range(collectives.REPEATS)]
        runs = [[each["collectives"].get(name) for each in facts.values()] for name in names]
        slowest = [max(each["seconds"] for each in run) for run in runs if None not in run]
        if seconds := min(slowest, default=None):
            rate = round(size / seconds / 1e6, 3)
            rates.append(AllReduce(kind, size, seconds, rate))  # type: ignore[arg-type]
    return Metrics(ratio, tuple(rates))


def evidence(
    directory: Path,
    runs: Sequence[Ranks],
    first: int | None,
    kernel: Sequence[str],
    remarks: Sequence[str],
) -> Path:
    """Keep the ends of all logs in one file, those of the rank that failed `first` foremost:
    whoever looks for a cause reads in order. Raises OSError where it cannot be written.
    """
    root = [] if first is None else [*_of_rank(runs[0], first)]
    stage = [*remarks, *hang.collectives(runs[0].directory)]
    found = [*root, _entry("stage", None, stage), _entry("kernel", None, kernel)]
    for run in runs:
        found.append(_entry("torchrun", None, last_lines(run.directory / "torchrun.log", _LINES)))
        others = [rank for rank in range(run.count) if run is not runs[0] or rank != first]
        found += [entry for rank in others for entry in _of_rank(run, rank)]
    kept, size = [], 0
    for each in found:
        size += len(json.dumps(each)) + 2
        if each["text"].strip() and size <= _ALL_BYTES:
            kept.append(each)
    files.write_text(directory / "evidence.json", json.dumps(kept, indent=1) + "\n")
    return directory / "evidence.json"


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
