"""Status, exit codes, schema, and files that are whole or not there."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pyinfra_gpu.on_host.smoke.judge import verdict
from pyinfra_gpu.on_host.smoke.judge.verdict import CheckResult

from pyinfra_gpu import on_host
from pyinfra_gpu.on_host.smoke import files

_SCHEMA_FILE = Path(on_host.__file__).with_name("verdict.schema.json")


def _status(*statuses: str) -> str:
    return verdict.status_of([CheckResult(f"S4.c{n}", s) for n, s in enumerate(statuses)])


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["pass", "pass"], "pass"),
        (["pass", "warn"], "warn"),
        (["warn", "unknown"], "unknown"),
        (["pass", "fail", "unknown", "warn"], "fail"),
        (["pass", "skip"], "pass"),
        (["skip"], "unknown"),
        ([], "unknown"),
    ],
)
def test_a_run_is_as_good_as_its_worst_check(statuses: list[str], expected: str) -> None:
    assert _status(*statuses) == expected


@pytest.mark.parametrize(
    ("status", "mode", "code"),
    [
        ("pass", "gpu", 0),
        ("warn", "gpu", 1),
        ("fail", "gpu", 2),
        ("unknown", "gpu", 3),
        ("pass", "rehearsal-cpu", 3),
        ("warn", "rehearsal-cpu", 3),
        ("fail", "rehearsal-cpu", 2),
        ("unknown", "rehearsal-cpu", 3),
        ("pass", "rehearsal-1gpu", 3),
        ("warn", "rehearsal-1gpu", 3),
        ("fail", "rehearsal-1gpu", 2),
    ],
)
def test_a_rehearsal_never_ends_with_the_exit_code_of_a_proof(
    status: str, mode: str, code: int
) -> None:
    assert verdict.exit_code(status, mode) == code
    assert verdict.proves(status, mode) is (mode == "gpu" and status in ("pass", "warn"))


def _stage(number: int, **changes: Any) -> dict[str, Any]:
    return {"id": f"S{number}", "status": "pass", "seconds": 1.5, "deadline_s": 20, **changes}


def _document(**changes: Any) -> dict[str, Any]:
    document = {
        "schema_version": 2,
        "mode": "rehearsal-cpu",
        "label": verdict.LABELS["rehearsal-cpu"],
        "status": "pass",
        "proof": False,
        "host": "box",
        "fingerprint": "c0ffee",
        "started": "2026-11-21T08:00:00Z",
        "finished": "2026-11-21T08:00:09Z",
        "duration_s": 9.1,
        "deadline_s": 180,
        "deadline_extra_s": 0,
        "stages": [_stage(number) for number in range(6)],
        "software": {
            "smoke_test_sha256": "0" * 64,
            "python": "3.11.7",
            "python_path": "/venv/bin/python",
            "torch": "2.13.0+cpu",
            "torch_path": "/venv/lib/torch",
            "kernel": "6.1",
            "boot_id": "b",
        },
        "environment": {"removed": {}},
        "gpus": [],
        "ranks": [],
        "checks": verdict.as_json([CheckResult("S4.finite", "pass", 0, 0, 0.1)]),
        "metrics": {},
        "xids_new": [],
        "failed": None,
        "reruns": [],
        "evidence": None,
        "rerun_command": "/venv/bin/python smoke_test.pyz --mode rehearsal-cpu",
        "logs": "/opt/smoke/verdict.json.logs",
    }
    return {**document, **changes}


_FAILED = {"id": "S4.finite", "sentence": "no", "rank": 1, "log": None, "tail": []}


def _validate(document: dict[str, Any]) -> None:
    schema = json.loads(_SCHEMA_FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)


def test_the_schema_takes_a_pass_and_a_failure() -> None:
    _validate(_document())
    _validate(_document(status="fail", failed=_FAILED))


@pytest.mark.parametrize(
    "changes",
    [
        {"proof": True},
        {"mode": "cpu"},
        {"mode": "rehearsal-1gpu", "proof": True},
        {"gpus": [{"index": 0}]},
        {"stages": [_stage(4)]},
        {"stages": [_stage(number, status="good") for number in range(6)]},
        {"reruns": [{"name": "unchanged"}]},
        {"rerun_command": ""},
        {"status": "good"},
        {"status": "fail"},
        {"failed": _FAILED},
        {"extra": 1},
        {"checks": []},
        {"fingerprint": "COFFEE"},
        {"started": "yesterday"},
        {"metrics": {"bandwidth": 1}},
        {"checks": [{"id": "S4.finite", "status": "pass"}]},
    ],
    ids=str,
)
def test_the_schema_refuses(changes: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        _validate(_document(**changes))


def test_numbers_without_a_json_word_are_written_as_strings(tmp_path: Path) -> None:
    file = tmp_path / "verdict.json"
    files.write(file, {"a": [math.nan, (math.inf,)], "b": {"c": -math.inf}, "d": 1.5})
    assert json.loads(file.read_text()) == {"a": ["nan", ["inf"]], "b": {"c": "-inf"}, "d": 1.5}


def test_writing_leaves_nothing_but_the_file(tmp_path: Path) -> None:
    (tmp_path / ".verdict.json.tmp").write_text("half a verd")  # of a run that was killed here
    files.write(tmp_path / "verdict.json", {"n": 1})
    files.write(tmp_path / "verdict.json", {"n": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["verdict.json"]
    assert json.loads((tmp_path / "verdict.json").read_text()) == {"n": 2}


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "verdict.json"
    files.write(file, {"n": 1})

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        files.write(file, {"n": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["verdict.json"]
    assert json.loads(file.read_text()) == {"n": 1}


_WRITE_FOR_EVER = """
import itertools, pathlib, sys
from pyinfra_gpu.on_host.smoke import files
file = pathlib.Path(sys.argv[1])
for n in itertools.count():
    files.write(file, {"n": n, "filling": "x" * 200_000, "end": n})
"""


def test_whenever_a_writer_is_killed_the_file_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "verdict.json"
    for attempt in range(5):
        writer = subprocess.Popen([sys.executable, "-c", _WRITE_FOR_EVER, str(file)])
        limit = time.monotonic() + 60
        while not file.exists() and time.monotonic() < limit:
            time.sleep(0.01)
        time.sleep(0.03 + 0.017 * attempt)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        document = json.loads(file.read_text())
        assert document["n"] == document["end"]
