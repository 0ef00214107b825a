"""The proof of a CUDA toolkit with a real one: it needs nvcc 13.0, and no GPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.on_host.proving import TOOLKIT, last_line, prove_cuda

pytestmark = [
    pytest.mark.skipif(
        not (TOOLKIT / "bin/nvcc").exists() or shutil.which("g++") is None,
        reason=f"needs a toolkit in {TOOLKIT} and g++",
    ),
]


def test_nvcc_makes_code_for_each_architecture(tmp_path: Path) -> None:
    # Flags of a person's shell, which would break the compilation.
    result = prove_cuda(tmp_path, 120, 90, environment={"NVCC_APPEND_FLAGS": "--no-such-flag"})
    assert result.returncode == 0, result.stdout + result.stderr
    assert last_line(result) == "nvcc of CUDA 13.0 makes code for sm_120, sm_90"
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("archs", "changes", "words"),
    [
        ((70,), {}, "nvcc cannot make code for sm_70: "),
        ((120,), {"compiler": "g++-99"}, "there is no compiler g++-99"),
        ((120,), {"release": "13.1"}, "the program that nvcc linked is of CUDA 13.0, not 13.1"),
        ((120,), {"toolkit": "/nowhere"}, "nvcc cannot make code for sm_120: "),
    ],
)
def test_what_nvcc_cannot_do_is_said(
    tmp_path: Path, archs: tuple[int, ...], changes: dict[str, object], words: str
) -> None:
    result = prove_cuda(tmp_path, *archs, **changes)  # type: ignore[arg-type]
    assert result.returncode == 1
    assert last_line(result).startswith(words)
