"""The launcher in mode gpu, run for real where there is no GPU: what stops it, and how early.

nvidia-smi is simulated; torch is the CPU build. No such run may end as a proof.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from smoke_gpu_simulated import executable, rtx_5090

from pyinfra_gpu.stacks.bundle import smoke_bundle

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

if torch.cuda.is_available():
    pytest.skip(
        "this machine has a GPU: tests/gpu runs the launcher there", allow_module_level=True
    )


def _run(
    tmp_path: Path, gpus: list[dict[str, str]] | None, *arguments: str, users: str = ""
) -> tuple[int, dict[str, Any], str]:
    bundle, output = tmp_path / "smoke_test.pyz", tmp_path / "verdict.json"
    bundle.write_bytes(smoke_bundle())
    path = {"PATH": str(tmp_path)} if gpus is None else executable(tmp_path / "bin", gpus, users)
    command = [sys.executable, str(bundle), *arguments, "--output", str(output)]
    environment = {**os.environ, **path}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode in (1, 2, 3), done.stdout + done.stderr
    return done.returncode, json.loads(output.read_text()), done.stdout


def _statuses(verdict: dict[str, Any], stage: str) -> set[str]:
    return {check["status"] for check in verdict["checks"] if check["id"].startswith(stage)}


def test_a_torch_built_for_the_cpu_stops_before_the_ranks(tmp_path: Path) -> None:
    code, verdict, printed = _run(tmp_path, [rtx_5090(0), rtx_5090(1)], "--mode", "gpu")
    assert (code, verdict["mode"], verdict["proof"]) == (2, "gpu", False)
    assert verdict["failed"]["id"] == "S1.cuda"
    assert "is built for the CPU" in verdict["failed"]["sentence"]
    assert _statuses(verdict, "S4") == {"skip"}
    assert verdict["ranks"] == []
    assert [gpu["name"] for gpu in verdict["gpus"]] == ["NVIDIA GeForce RTX 5090"] * 2
    assert "FAIL S1.cuda" in printed


def test_a_gpu_too_few_stops_before_torch_is_imported(tmp_path: Path) -> None:
    code, verdict, _ = _run(tmp_path, [rtx_5090(0)], "--mode", "gpu", "--gpus", "2")
    assert (code, verdict["failed"]["id"]) == (2, "S0.gpus")
    assert "lists 1 GPUs, 2 are declared" in verdict["failed"]["sentence"]
    assert _statuses(verdict, "S1") == {"skip"}


def test_what_a_kind_of_gpu_must_show_is_in_the_bundle(tmp_path: Path) -> None:
    gpus = [rtx_5090(0), {**rtx_5090(1), "memory.total": "24000"}]
    _, verdict, _ = _run(tmp_path, gpus, "--mode", "gpu")
    (memory,) = [check for check in verdict["checks"] if check["id"] == "S0.gpu_memory"]
    assert memory["status"] == "warn"
    assert "24000 MiB of memory, a NVIDIA GeForce RTX 5090 has 32607" in memory["detail"]


def test_a_host_without_nvidia_smi_fails_and_says_so(tmp_path: Path) -> None:
    code, verdict, _ = _run(tmp_path, None, "--mode", "gpu", "--gpus", "2")
    assert (code, verdict["failed"]["id"]) == (2, "S0.gpus")
    assert "nvidia-smi cannot be run" in verdict["failed"]["sentence"]


def test_gpus_in_use_are_left_alone_and_nothing_is_concluded(tmp_path: Path) -> None:
    users = "4711, /home/ann/venv/bin/python, 9000, GPU-00000000-1111-2222-3333-444444444444"
    gpus = [rtx_5090(0), rtx_5090(1)]
    code, verdict, printed = _run(tmp_path, gpus, "--mode", "gpu", users=users)
    assert (code, verdict["status"]) == (3, "unknown")
    assert verdict["failed"]["id"] == "S0.gpu_processes"
    assert "4711" in verdict["failed"]["sentence"]
    assert _statuses(verdict, "S1") == {"skip"}
    assert "UNKNOWN S0.gpu_processes" in printed
