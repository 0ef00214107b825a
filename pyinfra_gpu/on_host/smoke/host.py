"""S0 and S5: what any host must have before a test makes sense, and what a test has left behind."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Set
from pathlib import Path
from typing import Any

from . import nvidia_smi
from .check import Fact, Facts, Want, fail, skip, warn
from .nvidia_smi import Run
from .options import GPU

_SHM = Path("/dev/shm")  # noqa: S108 - the very directory that is tested
_MIB = 2**20
_MOST_LINES = 400
_KILLED = re.compile(r"Killed process (\d+)")  # mm/oom_kill.c
_GPU_ERROR = re.compile(r"NVRM: (?:Xid \(|GPU .*fallen off the bus)|PCIe Bus Error: severity=.*")
"""The driver's number of an error (Xid), the loss of a GPU, or an error of a PCIe link."""
_HARMLESS = re.compile(
    r"\): (?:63|92|176)\b|recovery action changed .* to \S+ \(None\)|PCIe Bus Error"
)
"""Xids of what was corrected, and recorded for later: a row to be remapped, memory, a link; and a
link's own errors, of which the driver tells those that cost something. The numbers are NVIDIA's
("XID errors" in the GPU deployment documentation)."""


def shm_trial_mib(mode: str) -> int:
    """Return the MiB of shared memory that a test in `mode` must be able to get.

    Data loaders use it; NCCL's transport takes 32 MiB and more for each two GPUs.
    """
    return 256 if mode == GPU else 16


def before(removed: list[str], mode: str) -> dict[str, Any]:
    """Return the facts of S0 on any host.

    + removed: the variables taken out of the environment
    """
    return {"variables": removed, "shm": _shared_memory(shm_trial_mib(mode))}


def _shared_memory(mib: int) -> dict[str, Any]:
    """Allocate as NCCL and data loaders do: a full tmpfs shows in that, not in its size."""
    fact: dict[str, Any] = {"mib": mib, "free_mib": 0, "error": None}
    try:
        room = os.statvfs(_SHM)
        fact["free_mib"] = room.f_bavail * room.f_frsize // _MIB
        with tempfile.TemporaryFile(dir=_SHM, prefix="smoke-test-") as file:
            os.posix_fallocate(file.fileno(), 0, mib * _MIB)
    except OSError as error:
        fact["error"] = error.strerror or str(error)
    return fact


def variables(mine: Fact, _: Want, __: Facts) -> str:
    """Judge the environment that the test was called in."""
    if names := mine["variables"]:
        warn(f"set here and removed for this test only: {', '.join(names)}; unset where it is set")
    return ""


def shm(mine: Fact, _: Want, __: Facts) -> str:
    """Judge the shared memory."""
    mib, free, error = mine["shm"].values()
    if error:
        fail(f"{mib} MiB cannot be allocated in {_SHM} ({free} MiB free): {error}; ls -lS {_SHM}")
    return f"{free} MiB free"


def finished(_: Fact, __: Want, ___: Facts) -> str:
    """Say that torchrun ended well; that it did not is said of the first check without facts."""
    return "exit code 0"


# -- afterwards


def kernel_log_since(began: float, run: Run = nvidia_smi.run) -> list[str] | None:
    """Return the last lines that the kernel logged since a time; None if they cannot be read.

    Nothing older, which would blame this test for what happened before it; and nothing is concluded
    from a log that cannot be read.
    """
    command = ["journalctl", "--dmesg", "--no-pager", "--output=short-monotonic", "--quiet"]
    readable, reported = run([*command, "--lines=1"]), run([*command, f"--since=@{began:.6f}"])
    if readable.ok and readable.text.strip() and reported.ok:
        return reported.text.splitlines()[-_MOST_LINES:]
    return None


def after(lines: list[str] | None, pids: Set[int], left: Set[int]) -> dict[str, Any]:
    """Return the facts of S5 on any host.

    + lines: of the kernel's log since the test began, None if it cannot be read
    + pids: the processes of this test; left: those that were still there after its end
    """
    reported = [line.partition("] ")[2] or line for line in lines or ()]
    of_gpus = [line for line in reported if _GPU_ERROR.search(line)]
    kernel = {
        "lines": lines,
        "own": [line for line in reported if pids & {int(pid) for pid in _KILLED.findall(line)}],
        "serious": [line for line in of_gpus if not _HARMLESS.search(line)],
        "harmless": [line for line in of_gpus if _HARMLESS.search(line)],
    }
    return {"kernel": kernel, "processes": sorted(left)}


def kernel_log(mine: Fact, _: Want, __: Facts) -> str:
    """Judge what the kernel said meanwhile of this test, or of GPUs."""
    kernel = mine["kernel"]
    if kernel["lines"] is None:
        skip("this user may not read the kernel's log")
    if kernel["own"]:
        fail(f"the kernel ended a process of this test: {kernel['own'][0]}")
    for judge, lines in (fail, kernel["serious"]), (warn, kernel["harmless"]):
        for line in lines:
            judge(f"the kernel reported during the test: {line}")
    return f"{len(kernel['lines'])} new lines, none about this test or a GPU"


def leftovers(mine: Fact, _: Want, __: Facts) -> str:
    """Judge what is left of the ranks."""
    if left := mine["processes"]:
        fail(f"torchrun has ended and left processes {', '.join(map(str, left))}; they were ended")
    return "no process is left"
