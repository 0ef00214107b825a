"""Calls of the proof of a CUDA toolkit, as a host runs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from pyinfra_gpu.on_host import proofs

TOOLKIT = Path("/usr/local/cuda-13.0")


def last_line(result: subprocess.CompletedProcess[str]) -> str:
    return (result.stdout + result.stderr).strip().splitlines()[-1]


def prove(
    proof: proofs.Proof, asked: dict[str, object], **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        proofs.command(proof, {**asked}),
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "TMPDIR": "/nowhere", **environment},
    )


def prove_cuda(
    tmp_path: Path, *archs: int, environment: dict[str, str] | None = None, **changes: object
) -> subprocess.CompletedProcess[str]:
    asked: dict[str, object] = {
        "work": str(tmp_path / "work"),
        "toolkit": str(TOOLKIT),
        "release": "13.0",
        "compiler": "g++",
        "archs": list(archs),
    }
    return prove("cuda", {**asked, **changes}, **(environment or {}))
