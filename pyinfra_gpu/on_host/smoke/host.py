"""S0 and S5: what any host must have before a test makes sense, and what a test has left behind."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import nvidia_smi
from .check import Fact, Facts, Want, fail, skip, warn
from .nvidia_smi import Run
from .options import GPU

_SHM = Path("/dev/shm")  # noqa: S108 - the very directory that is tested
_MIB = 2**20
_SHM_WISHED_MIB = 1024
"""NCCL's documentation tells people to raise the 64 MiB that a container has by default to this."""
_DISK_NEEDED_MIB, _DISK_WISHED_MIB = 64, 1024
"""Logs, verdict and compiled kernels need less than the first, a checkpoint more than that."""
_MOST_LINES = 400
_OF_A_PROCESS = re.compile(
    r"Killed process (\d+)|\[(\d+)\]: segfault at|\[(\d+)\] (?:general protection|trap )"
)
"""What the kernel says of a process (mm/oom_kill.c, arch/x86: mm/fault.c and kernel/traps.c)."""
_HARDWARE = re.compile(
    r"\[Hardware Error\]|mce: .*(?:error|event)|EDAC \S+: \d+ [CU]E", re.IGNORECASE
)
_PCI = r"(?P<pci>[0-9a-fA-F]{4,8}(?::[0-9a-fA-F]{2}){2}(?:\.\d)?)"
# Of a GPU that is divided (MIG) the address is followed by whose it is: " GPU-I:05 GPU-CI:01".
_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?{_PCI}[^)]*\): (?P<what>\d+)(?:, (?P<text>.*))?")
_AER = re.compile(rf"\S+ {_PCI}: (?:AER: )?(?P<what>PCIe Bus Error): severity=(?P<text>.*)")
_FALLEN = re.compile(rf"NVRM: GPU (?:at PCI:)?{_PCI}.*(?P<what>)(?P<text>fallen off the bus)")
_HARMLESS = ("63", "92", "176")
"""Xids of what was corrected, and recorded for later: a row to be remapped, memory, a link."""
_MENDED = re.compile(r"Corr|.*recovery action changed .* to \S+ \(None\)")


def shm_trial_mib(mode: str) -> int:
    """Return the MiB of shared memory that a test in `mode` must be able to get.

    Data loaders use it; NCCL's transport takes 32 MiB and more for each two GPUs.
    """
    return 256 if mode == GPU else 16


def before(directory: Path, removed: list[str], mode: str) -> dict[str, Any]:
    """Return the facts of S0 on any host.

    + directory: where the test writes; removed: the variables taken out of the environment
    """
    room = os.statvfs(directory)
    return {
        "variables": removed,
        "shm": _shared_memory(_SHM, shm_trial_mib(mode)),
        "disk": {
            "path": str(directory),
            "free_mib": room.f_bavail * room.f_frsize // _MIB,
            # 0 inodes in all: a file system that does not count them
            "free_inodes": room.f_favail if room.f_files else None,
        },
    }


def _shared_memory(path: Path, trial_mib: int) -> dict[str, Any]:
    """Allocate as NCCL and data loaders do: a full tmpfs shows in that, not in its size."""
    fact: dict[str, Any] = {"path": str(path), "trial_mib": trial_mib, "error": None}
    try:
        room = os.statvfs(path)
        fact["size_mib"] = room.f_blocks * room.f_frsize // _MIB
        fact["free_mib"] = room.f_bavail * room.f_frsize // _MIB
        with tempfile.TemporaryFile(dir=path, prefix="smoke-test-") as file:
            os.posix_fallocate(file.fileno(), 0, trial_mib * _MIB)
    except OSError as error:
        fact["error"] = error.strerror or str(error)
        fact["largest"] = sorted(_sizes(path), reverse=True)[:3]
    return fact


def _sizes(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the MiB of each file."""
    with suppress(OSError):
        for entry in os.scandir(path):
            with suppress(OSError):  # gone meanwhile
                yield entry.stat(follow_symlinks=False).st_size // _MIB, entry.name


def variables(mine: Fact, _: Want, __: Facts) -> str:
    """Judge the environment that the test was called in."""
    if names := mine["variables"]:
        warn(f"set here and removed for this test only: {', '.join(names)}; unset where it is set")
    return ""


def shm(mine: Fact, want: Want, _: Facts) -> str:
    """Judge the shared memory."""
    shm = mine["shm"]
    if shm["error"]:
        largest = ", ".join(f"{name} ({size} MiB)" for size, name in shm["largest"])
        known = f" ({shm['size_mib']} MiB, {shm['free_mib']} free)" if "size_mib" in shm else ""
        detail = f"{shm['trial_mib']} MiB cannot be allocated in {shm['path']}{known}"
        fail(f"{detail}: {shm['error']}" + (f"; largest files: {largest}" if largest else ""))
    if want.mode == GPU and shm["free_mib"] < _SHM_WISHED_MIB:
        warn(f"{shm['path']} has {shm['free_mib']} MiB free, less than {_SHM_WISHED_MIB} MiB")
    return f"{shm['free_mib']} MiB free"


def disk(mine: Fact, _: Want, __: Facts) -> str:
    """Judge the room where the test writes."""
    path, free, inodes = mine["disk"].values()
    if free < _DISK_NEEDED_MIB or inodes == 0:
        what = "no inodes" if inodes == 0 else f"{free} MiB"
        fail(f"{path} has {what} free, the test needs {_DISK_NEEDED_MIB} MiB")
    if free < _DISK_WISHED_MIB:
        warn(f"{path} has {free} MiB free, less than {_DISK_WISHED_MIB} MiB")
    return f"{free} MiB free"


def finished(mine: Fact, _: Want, __: Facts) -> str:
    """Judge torchrun's end."""
    if code := mine["ended"]:
        fail(f"exit code {code}")
    return "exit code 0"


# -- afterwards


def kernel_log_since(began: float, run: Run = nvidia_smi.run) -> list[str] | None:
    """Return the last lines that the kernel logged since a time; None if they cannot be read.

    Nothing older, which would blame this test for what happened before it; and nothing is concluded
    from a log that cannot be read.
    """
    command = ["journalctl", "--dmesg", "--no-pager", "--output=short-monotonic", "--quiet"]
    readable, told = run([*command, "--lines=1"]), run([*command, f"--since=@{began:.6f}"])
    if readable.ok and readable.text.strip() and told.ok:
        return told.text.splitlines()[-_MOST_LINES:]
    return None


def after(lines: list[str] | None, pids: Collection[int], left: Collection[int]) -> dict[str, Any]:
    """Return the facts of S5 on any host.

    + lines: of the kernel's log since the test began, None if it cannot be read
    + pids: the processes of this test; left: those that were still there after its end
    """
    told = [line.strip() for line in lines or ()]
    kernel = {
        "lines": lines,
        "own": [line for line in told if _of(line) in pids],
        "hardware": [line for line in told if _HARDWARE.search(line)],
        "gpus": [event for line in told for event in gpu_errors(line)],
    }
    return {"kernel": kernel, "processes": sorted(left)}


def _of(line: str) -> int | None:
    found = _OF_A_PROCESS.search(line)
    return int(next(filter(None, found.groups()))) if found else None


def gpu_errors(line: str) -> Iterator[tuple[bool, str]]:
    """Yield the GPU error that a line of the kernel's log tells: the driver's number of it (Xid),
    an error of its PCIe link, or its loss.

    That is whether it is serious (else it was corrected, and nothing was lost), and a sentence. An
    unknown number is serious. The numbers are NVIDIA's ("XID errors" in the GPU deployment
    documentation); what to do is in the catalogue of known failures, which reads the same lines.
    """
    for name, pattern in (("Xid ", _XID), ("", _AER), ("GPU", _FALLEN)):
        if found := pattern.search(line):
            what, text = f"{name}{found['what']}", (found["text"] or "no text")[:300]
            serious = not _MENDED.match(text) and found["what"] not in _HARMLESS
            yield serious, f"{what} on {found['pci']}: {text}"
            return


def kernel_log(mine: Fact, _: Want, __: Facts) -> str:
    """Judge what the kernel said meanwhile of this test, or of the hardware."""
    kernel = mine["kernel"]
    if kernel["lines"] is None:
        skip("this user may not read the kernel's log")
    if kernel["own"]:
        fail(f"the kernel reports that a process of this test was killed: {kernel['own'][0]}")
    if kernel["hardware"]:
        warn(f"the kernel reported a hardware error during the test: {kernel['hardware'][0]}")
    return f"{len(kernel['lines'])} new lines, none about this test"


def xids(mine: Fact, _: Want, __: Facts) -> str:
    """Judge what the kernel said meanwhile of GPUs."""
    kernel = mine["kernel"]
    if kernel["lines"] is None:
        skip("the kernel's log cannot be read")
    for serious, sentence in sorted(kernel["gpus"], key=lambda event: not event[0]):
        (fail if serious else warn)(sentence)
    return "no new GPU error in the kernel's log"


def leftovers(mine: Fact, _: Want, __: Facts) -> str:
    """Judge what is left of the ranks."""
    if left := mine["processes"]:
        fail(f"torchrun has ended and left processes {', '.join(map(str, left))}; they were ended")
    return "no process is left"
