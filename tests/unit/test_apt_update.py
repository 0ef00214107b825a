"""Lists of packages are fetched, also where another process is about to do the same."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from pyinfra_gpu.on_host import program

HELD = (
    "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4711 (apt-get)\n"
    "E: Unable to lock directory /var/lib/apt/lists/"
)


def run(tmp_path: Path, script: str, seconds: int = 10) -> subprocess.CompletedProcess[str]:
    """Run the program with a command of ours in the place of apt-get; it counts its calls."""
    fake = tmp_path / "fake"
    fake.write_text(f'#!/bin/sh\necho x >>"{tmp_path}/calls"\n{script}\n')
    fake.chmod(0o755)
    command = program("packages/apt/update.sh", str(seconds), str(fake), "update")
    return subprocess.run(
        ["sh", "-c", command], env={"PATH": os.environ["PATH"]},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def calls(tmp_path: Path) -> int:
    return len((tmp_path / "calls").read_text().splitlines())


def test_what_it_says_and_how_it_ends_are_the_commands_own(tmp_path: Path) -> None:
    done = run(tmp_path, 'echo "$LC_ALL $1"; echo oops >&2; exit 100')
    assert (done.stdout, done.returncode, calls(tmp_path)) == ("C update\noops\n", 100, 1)


def test_another_fetch_of_the_lists_is_waited_for(tmp_path: Path) -> None:
    held = f"[ -e {tmp_path}/free ] || {{ touch {tmp_path}/free; echo '{HELD}' >&2; exit 100; }}"
    done = run(tmp_path, f"{held}; echo done")
    assert (done.stdout, done.returncode, calls(tmp_path)) == ("done\n", 0, 2)


@pytest.mark.parametrize("seconds", [0, 1])
def test_it_is_not_waited_for_longer_than_declared(tmp_path: Path, seconds: int) -> None:
    began = time.monotonic()
    done = run(tmp_path, f"echo '{HELD}' >&2; exit 100", seconds)
    assert done.returncode == 100
    assert "4711" in done.stdout
    assert calls(tmp_path) == seconds + 1
    assert time.monotonic() - began < 200
