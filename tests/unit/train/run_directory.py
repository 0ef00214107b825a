"""A run's directory as the launcher leaves it, for what reads it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyinfra_gpu.on_host.train.record import boot_id

NOW = 1795377600.0
"""2026-11-22 20:00:00 UTC."""


def iso(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")[:-4] + "Z"


def write_run(
    root: Path,
    *,
    name: str = "20261122-200000-balanced",
    state: str = "running",
    outcome: str | None = None,
    metrics: Sequence[Mapping[str, Any]] = (),
    logs: Mapping[str, str] | None = None,
    attempt: Mapping[str, Any] | None = None,
    alive: bool = True,
    **fields: Any,
) -> Path:
    """Write a run of one attempt and return its directory.

    + logs: name of a log -> its text; a line gets a stamp
    + attempt, fields: over what stands here
    + alive: whether its supervisor is there, as long as it has not ended
    """
    folder = root / name
    (folder / "attempts" / "1").mkdir(parents=True)
    ended = iso(NOW) if state == "ended" else None
    attempts = [
        {
            "number": 1,
            "started": iso(NOW - 5977),
            "ended": ended,
            "boot_id": boot_id(),
            "resumed_from": None,
            "exit": {"failed": 1, "finished": 0}.get(outcome or ""),
            "outcome": outcome,
            "first_failed_rank": None,
            "cause": None,
            **(attempt or {}),
        }
    ]
    told = {
        "schema": 1,
        "run": name,
        "host": "ws1",
        "preset": "balanced",
        "overrides": {"depth": "20"},
        "command": ["torchrun", "-m", "scripts.base_train"],
        "variables": {},
        "gpus": ["GPU-1", "GPU-2"],
        "nproc": 2,
        "commit": "92d63d4a1f0e5b7c8d9e0f1a2b3c4d5e6f708192",
        "dirty": False,
        "versions": {},
        "stamp": None,
        "unproven": False,
        "retries": 0,
        "like": None,
        "across": None,
        "checkpoints": None,
        "created": iso(NOW - 6000),
        "state": state,
        "waits": None,
        "attempts": attempts,
        **fields,
    }
    (folder / "run.json").write_text(json.dumps(told), encoding="utf-8")
    if state != "ended" and alive:
        supervisor = os.open(folder / ".alive", os.O_RDWR | os.O_CREAT)
        fcntl.flock(supervisor, fcntl.LOCK_EX)  # for as long as the tests take
    lines = "".join(f"{json.dumps(each)}\n" for each in metrics)
    (folder / "metrics.jsonl").write_text(lines, encoding="utf-8")
    for log, text in (logs or {}).items():
        stamped = "".join(f"{iso(NOW - 60)} {line}\n" for line in text.splitlines())
        (folder / "attempts" / "1" / log).write_text(stamped, encoding="utf-8")
    return folder


def steps(count: int, *, each: float = 1.42, total: int | None = 5960, **more: Any) -> list[Any]:
    """Return the metrics of so many steps, the last one now; the loss falls from 11 to 3."""
    return [
        {
            "time": iso(NOW - (count - 1 - step) * each),
            "attempt": 1,
            "step": step,
            **({"steps": total} if total else {}),
            "loss": 3 + 8 / (1 + step / 40),
            **more,
        }
        for step in range(count)
    ]
