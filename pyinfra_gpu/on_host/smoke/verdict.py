"""The verdict: one JSON document a run, its status and its exit code; and the stamp of a pass."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .options import GPU, REHEARSAL_1GPU, REHEARSAL_CPU

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


def stamp(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stamp of a verdict that passed, with or without warnings."""
    return {key: document[key] for key in ("fingerprint", "status", "mode", "finished")}


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Replace `path` by `document`, as `write_text` does."""
    write_text(path, json.dumps(_finite(document), indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` so that no reader, and no power cut, ever shows half of it.

    Raises OSError if that is not possible; `path` is then what it was. The temporary file has a
    fixed name, so that one left behind by a killed run is overwritten by the next.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        _write_durably(temporary, text.encode())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _finite(value: Any) -> Any:
    """Return `value` with numbers that JSON has no word for as strings ("nan", "inf")."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
