"""Programs that tests start from a small process are started as `subprocess.run` starts them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import starting


def test_a_program_runs_where_and_with_what_the_test_has_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORD", "é")
    script = 'pwd; printf %s "$WORD"; cat; echo wrong >&2; exit 3'
    done = starting.run(["sh", "-c", script], input="!", text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (3, "wrong\n")
    assert done.stdout == f"{tmp_path}\né!"
    done = starting.run(["sh", "-c", "pwd; env"], cwd="/", env={"A": "1"}, capture_output=True)
    assert done.stdout.startswith(b"/\n")
    assert b"WORD" not in done.stdout


def test_what_fails_is_raised_here_and_the_next_program_starts() -> None:
    with pytest.raises(subprocess.CalledProcessError, match="status 7"):
        starting.run(["sh", "-c", "exit 7"], check=True)
    with pytest.raises(subprocess.TimeoutExpired):
        starting.run(["sleep", "60"], timeout=0.1)
    with pytest.raises(FileNotFoundError):
        starting.run(["no-such-program"])
    assert starting.run(["true"]).returncode == 0
