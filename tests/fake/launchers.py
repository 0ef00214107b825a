"""Hosts whose launchers answer what a test says, and `pyinfra-gpu train` run over them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pyinfra_gpu import cli

DATA = {
    "stack": "cpu-torch2.13",
    "training_repo": "https://example.org/tiny.git",
    "training_commit": "0123456789abcdef0123456789abcdef01234567",
    "fake_delay": 0.0,
    "fake_delay_jitter": 0.0,
}
Answers = Mapping[str, Any]
_NUMBERS = count()


def run(name: str = "20261122-200000-balanced", **fields: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "run": name,
        "host": "ws1",
        "preset": "balanced",
        "gpus": ["GPU-1"],
        "created": "2026-11-22T20:00:00Z",
        "state": "running",
        "attempts": [{"number": 1, "outcome": None}],
        "last": {"step": 4209, "steps": 5960, "loss": 2.7149, "tokens_per_second": 368417.0},
        "stalled_seconds": None,
        **fields,
    }


def listed(*runs: Any) -> dict[str, Any]:
    return {"list --json": json.dumps({"schema": 1, "runs": list(runs)})}


def ended(outcome: str, **fields: Any) -> dict[str, Any]:
    return run(state="ended", attempts=[{"number": 1, "outcome": outcome}], **fields)


def asked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hosts: Mapping[str, Answers],
    *words: str,
    data: Mapping[str, Any] | None = None,
) -> int:
    """Run the command as a person does, over an inventory of these hosts."""
    entries = [
        (f"@fake/{name}", {**DATA, **(data or {}), "fake_responses": dict(answers)})
        for name, answers in hosts.items()
    ]
    name = f"hosts{next(_NUMBERS)}.py"  # pyinfra keeps what it read by its name
    (tmp_path / name).write_text(f"hosts = {entries!r}\n", encoding="utf-8")
    (tmp_path / "deploy.py").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return cli.main(["train", name, *words])
