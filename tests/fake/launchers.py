"""Hosts whose launchers answer what a test says, and `pyinfra-gpu train` run over them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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
Ask = Callable[..., tuple[int, str]]
REFUSED = {"success": False, "stderr": "this run cannot start: no smoke test has passed here"}
_NUMBERS = count()


def run(outcome: str = "running", **fields: Any) -> dict[str, Any]:
    ended = outcome in ("finished", "failed", "lost", "stopped")
    return {
        "run": "20261122-200000-balanced",
        "state": "ended" if ended else outcome,
        "outcome": outcome,
        "wrong": outcome in ("failed", "lost"),
        "preset": "balanced",
        "last": {"step": 4209, "steps": 5960, "loss": 2.7149, "tokens_per_second": 368417.0},
        "words": {"step": "4,209/5,960", "loss": "2.7149", "speed": "368,417 tokens/s"},
        **fields,
    }


def listed(*runs: Any) -> dict[str, Any]:
    return {"list --json": json.dumps({"schema": 1, "runs": list(runs)})}


def asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Ask:
    """Return what runs the command: (hosts, words) -> (exit code, what it said, one blank each)."""
    monkeypatch.chdir(tmp_path)
    Path("deploy.py").touch()

    def ask(
        hosts: Mapping[str, Answers], *words: str, data: Mapping[str, Any] | None = None
    ) -> tuple[int, str]:
        entries = [
            (f"@fake/{name}", {**DATA, **(data or {}), "fake_responses": dict(answers)})
            for name, answers in hosts.items()
        ]
        name = f"hosts{next(_NUMBERS)}.py"  # pyinfra keeps what it read by its name
        Path(name).write_text(f"hosts = {entries!r}\n", encoding="utf-8")
        try:
            code = cli.main(["train", name, *words])
        except SystemExit as ended:
            code = int(ended.code or 0)
        told = capsys.readouterr()
        return code, told.out + told.err

    return ask
