"""`tests/gpu/run`, as far as a machine without a GPU shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).parents[1] / "gpu/run"


def test_without_a_driver_it_says_so_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit/smoke_test.pyz").touch()
    words = [sys.executable, str(RUN), str(tmp_path / "out"), "--kit", str(tmp_path / "kit")]
    done = subprocess.run(words, env={"PATH": "/nowhere"}, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "tests/gpu/run: there is no nvidia-smi, so no NVIDIA driver: "
        "--rehearsal tries the same way on the CPU\n"
    )


def test_without_what_was_packed_it_says_how_to_pack(tmp_path: Path) -> None:
    words = [sys.executable, str(RUN), str(tmp_path / "out"), "--kit", str(tmp_path / "kit")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert "run `make gpu-kit` where the project is set up" in done.stderr
