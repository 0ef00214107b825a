"""The verdict: one JSON document a run, its status and its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..options import GPU, REHEARSAL_1GPU, REHEARSAL_CPU

SCHEMA_VERSION = 2
LABELS = {
    GPU: "gpu: NCCL on all GPUs of this host, one rank a GPU",
    REHEARSAL_1GPU: "rehearsal-1gpu: two NCCL ranks share one GPU; it proves what one GPU can, "
    "not that two work together",
    REHEARSAL_CPU: "rehearsal-cpu: gloo on the CPU, no GPU was used; this is not proof of a "
    "working GPU host",
}
_PROVES = frozenset({GPU})
FAILED = 2
_EXIT_CODES = {"pass": 0, "warn": 1, "fail": FAILED, "unknown": 3}
NOT_PROOF = 3


@dataclass(frozen=True)
class CheckResult:
    """One check as it stands in the verdict; `status` is pass, warn, fail, skip or unknown."""

    id: str
    status: str
    measured: Any = None
    expected: Any = None
    seconds: float | None = None
    detail: str = ""


def status_of(checks: Sequence[CheckResult]) -> str:
    """Return the run's status: its worst check's, and unknown if nothing was checked."""
    found = {check.status for check in checks}
    for status in ("fail", "unknown", "warn", "pass"):
        if status in found:
            return status
    return "unknown"


def exit_code(status: str, mode: str) -> int:
    """Return 0 pass, 1 degraded, 2 fail, 3 unknown, or not failed in a mode that proves nothing."""
    if status in ("pass", "warn") and mode not in _PROVES:
        return NOT_PROOF
    return _EXIT_CODES[status]


def proves(status: str, mode: str) -> bool:
    """Return whether the run proves that a GPU host works."""
    return mode in _PROVES and status in ("pass", "warn")


def as_json(checks: Sequence[CheckResult]) -> list[dict[str, Any]]:
    """Return the checks as they are written."""
    return [asdict(check) for check in checks]
