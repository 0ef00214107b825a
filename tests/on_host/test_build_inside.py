"""What a real torch tells the proof of a build: the one that this machine has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pyinfra_gpu.on_host import source
from pyinfra_gpu.on_host.build import ANSWER, UV_THREAD

pytestmark = pytest.mark.torch


def test_a_real_torch_loads_all_its_libraries_and_serves_its_store_with_libuv(
    tmp_path: Path,
) -> None:
    program = tmp_path / "build.py"
    program.write_bytes(source("build.py"))
    words = [sys.executable, "-I", str(program), "inside"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    (line,) = [row for row in done.stdout.splitlines() if row.startswith(ANSWER)]
    reported = json.loads(line.removeprefix(ANSWER))
    assert reported["unloadable"] == []
    assert reported["libraries"] > 3
    assert (reported["store"], reported["store_error"]) == ([UV_THREAD], None)
    assert len(reported["git_version"]) == 40
    assert reported["version"].startswith("2.")
