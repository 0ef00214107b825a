"""A simulated nvidia-smi for tests. Nothing here is a GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyinfra_gpu.on_host.smoke.nvidia_smi import Answer


def rtx_5090(index: int) -> dict[str, str]:
    """Return the fields of one RTX 5090 as a driver 580 prints them."""
    return {
        "index": str(index),
        "uuid": f"GPU-{index:08d}-1111-2222-3333-444444444444",
        "name": "NVIDIA GeForce RTX 5090",
        "driver_version": "580.95.05",
        "memory.total": "32607",
        "memory.used": "2",
        "mig.mode.current": "[N/A]",
        "ecc.errors.uncorrected.volatile.total": "[N/A]",
        "remapped_rows.failure": "[N/A]",
        "pcie.link.gen.current": "1",
        "pcie.link.gen.max": "5",
        "pcie.link.width.current": "16",
        "pcie.link.width.max": "16",
        "clocks_event_reasons.active": "0x0000000000000001",
    }


class Simulated:
    """Answers as nvidia-smi does."""

    def __init__(self, gpus: Sequence[Mapping[str, str]] | None = None) -> None:
        self.gpus = [rtx_5090(0), rtx_5090(1)] if gpus is None else list(gpus)
        self.processes = "    Processes                             : None\n"

    def __call__(self, command: Sequence[str]) -> Answer:
        if command[1] == "-q":
            return Answer(0, self.processes)
        fields = command[1].removeprefix("--query-gpu=").split(",")
        for field in fields:
            if field not in rtx_5090(0):
                return Answer(2, f'Field "{field}" is not a valid field to query.\n\n')
        return Answer(0, "".join(", ".join(row[f] for f in fields) + "\n" for row in self.gpus))


def executable(folder: Path) -> dict[str, str]:
    """Write a program `nvidia-smi` that shows two GPUs; return the PATH on which it is found."""
    folder.mkdir(exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(
        f"#!{sys.executable}\n# simulated, for tests\nimport sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tests.on_host.smoke_gpu_simulated import Simulated\n"
        "answer = Simulated()(sys.argv)\nprint(answer.text, end='')\nsys.exit(answer.code)\n"
    )
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}
