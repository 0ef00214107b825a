"""Calls of the proof of a CUDA toolkit, in every shell that a host may have."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pyinfra_gpu.on_host import proofs

FOLDER = Path(proofs.__file__).parent
TOOLKIT = Path("/usr/local/cuda-13.0")
SHELLS = [
    pytest.param(command, id=command[0]) for command in (["dash"], ["bash"], ["busybox", "sh"])
]


def last_line(result: subprocess.CompletedProcess[str]) -> str:
    return (result.stdout + result.stderr).strip().splitlines()[-1]


def prove_cuda(
    shell: list[str],
    tmp_path: Path,
    *archs: str,
    release: str = "13.0",
    compiler: str = "g++",
    toolkit: Path = TOOLKIT,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    script, output = str(FOLDER / "cuda_proof.sh"), str(tmp_path / "cuda.json")
    arguments = ["f1", output, "proof", str(toolkit), release, compiler, *archs]
    return subprocess.run(
        [*shell, script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "TMPDIR": "/nowhere", **environment},
    )
