"""The stages of one test: which checks belong to each, until when each must have ended, and how
long it took.

A stage runs only if nothing failed before it; S5 looks at what a started test has left, whatever
came before. Each deadline is a share of the whole test's, counted from its beginning: what one
stage leaves unused is there for the next, and their sum can never exceed the whole.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..checks import after, compile_check, host_checks, libraries, libuv
from ..judge import ranks, single
from ..judge.check import Check
from ..judge.verdict import CheckResult, status_of
from ..options import REHEARSAL_CPU

UNTIL: Mapping[str, float] = {"S0": 0.06, "S1": 0.25, "S2": 0.30, "S3": 0.50, "S4": 0.94, "S5": 1.0}
"""The share of the whole deadline at which each stage must have ended."""

SINGLE = ("S1", "S2", "S3")
"""The stages that try each device alone, in one process."""


def checks_of(mode: str) -> dict[str, tuple[Check, ...]]:
    """Return stage -> its checks in `mode`, both in the order in which they are decided."""
    own: dict[str, tuple[Check, ...]] = {
        "S0": host_checks.CHECKS,
        "S1": (*single.SINGLE_CHECKS, *libraries.CHECKS),
        "S2": libuv.CHECKS,
        "S3": (*compile_check.CHECKS, single.SINGLE_FINISHED),
        "S4": (*ranks.CHECKS, ranks.FINISHED),
        "S5": after.CHECKS,
    }
    if mode == REHEARSAL_CPU:
        return own
    from ..gpu import checks as gpu

    # A broken path between two GPUs is to be seen before the training step that would hang on it.
    at = next(place for place, each in enumerate(own["S4"]) if each.by == "training_step")
    own["S4"] = (*own["S4"][:at], *gpu.PAIR_CHECKS, *own["S4"][at:])
    added = {
        "S0": gpu.HOST_CHECKS,
        "S1": gpu.DEVICE_CHECKS,
        "S4": (*gpu.RANK_CHECKS, *gpu.RUN_CHECKS),
        "S5": gpu.AFTER_CHECKS,
    }
    return {
        stage: tuple(e for e in (*checks, *added.get(stage, ())) if gpu.applies(e.id, mode))
        for stage, checks in own.items()
    }


@dataclass
class Record:
    """When a stage ran, in seconds since the test began."""

    began: float
    until: float
    ended: float | None = None


class Clock:
    """The stages' deadlines and times; `began` is when the test did, on the monotonic clock."""

    def __init__(self, began: float, deadline: float) -> None:
        self._began = began
        self._deadline = deadline
        self._records: dict[str, Record] = {}

    def start(self, stage: str) -> float:
        """Note that `stage` runs, and that others have ended; return when it must have ended."""
        if stage not in self._records:
            self.stop()
            until = self._began + UNTIL[stage] * self._deadline
            self._records[stage] = Record(time.monotonic(), until)
        return self._records[stage].until

    def stop(self) -> None:
        """Note that whatever stage ran has ended."""
        for record in self._records.values():
            if record.ended is None:
                record.ended = time.monotonic()

    def limit(self, stage: str) -> int:
        """Return the seconds `stage`, which has begun, has or had."""
        record = self._records[stage]
        return round(record.until - record.began)

    def as_json(self, results: Sequence[CheckResult]) -> list[dict[str, Any]]:
        """Return one entry a stage as in the verdict; one that never began was skipped."""
        entries = []
        for stage in UNTIL:
            ran = [each for each in results if each.id.startswith(f"{stage}.")]
            ran = [each for each in ran if each.status != "skip" or each.seconds is not None]
            record = self._records.get(stage)
            # What one process does at once is over before it was seen to begin.
            seconds = max((each.seconds or 0.0 for each in ran), default=None)
            if ran and record is not None:
                seconds = (record.ended or time.monotonic()) - record.began
            entry = {
                "id": stage,
                "status": status_of(ran) if ran else "skip",
                "seconds": None if seconds is None else round(seconds, 3),
                "deadline_s": round(record.until - record.began, 3) if ran and record else None,
            }
            entries.append(entry)
        return entries
