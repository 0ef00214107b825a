"""S0 and S5: what any host must have before a test makes sense, and what a test has left behind."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import nvidia_smi, xid
from .check import Facts, Want, fail, skip, warn
from .options import GPU

_SHM = Path("/dev/shm")  # noqa: S108 - the very directory that is tested
_MIB = 2**20
_SHM_WISHED_MIB = 1024
"""NCCL's documentation tells people to raise the 64 MiB that a container has by default to this."""
_DISK_NEEDED_MIB, _DISK_WISHED_MIB = 64, 1024
"""Logs, verdict and compiled kernels need less than the first, a checkpoint more than that."""
_MOST_LINES = 400
_JOURNAL = ("journalctl", "--dmesg", "--no-pager", "--output=short-monotonic", "--quiet")
_CURSOR = re.compile(r"^-- cursor: (\S+)$", re.MULTILINE)
_OF_A_PROCESS = re.compile(
    r"Killed process (?P<killed>\d+)|\[(?P<faulted>\d+)\]: segfault at"
    r"|\[(?P<trapped>\d+)\] (?:general protection|trap )"
)
"""What the kernel says of a process (mm/oom_kill.c, arch/x86: mm/fault.c and kernel/traps.c)."""
_HARDWARE = re.compile(
    r"\[Hardware Error\]|mce: .*(?:error|event)|EDAC \S+: \d+ [CU]E", re.IGNORECASE
)


def shm_trial_mib(mode: str) -> int:
    """Return the MiB of shared memory that a test in `mode` must be able to get.

    Data loaders use it; NCCL's transport takes 32 MiB and more for each two GPUs.
    """
    return 256 if mode == GPU else 16


def before(directory: Path, removed: Mapping[str, str], mode: str) -> dict[str, Any]:
    """Return the facts of S0 on any host.

    + directory: where the test writes; removed: the variables taken out of the environment
    """
    room = os.statvfs(directory)
    return {
        "variables": sorted(removed),
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


def variables(facts: Facts, _: Want) -> str:
    """Judge the environment that the test was called in."""
    if names := facts[0]["variables"]:
        warn(f"set here and removed for this test only: {', '.join(names)}; unset where it is set")
    return ""


def shm(facts: Facts, want: Want) -> str:
    """Judge the shared memory."""
    shm = facts[0]["shm"]
    if shm["error"]:
        largest = ", ".join(f"{name} ({size} MiB)" for size, name in shm["largest"])
        known = f" ({shm['size_mib']} MiB, {shm['free_mib']} free)" if "size_mib" in shm else ""
        detail = f"{shm['trial_mib']} MiB cannot be allocated in {shm['path']}{known}"
        fail(f"{detail}: {shm['error']}" + (f"; largest files: {largest}" if largest else ""))
    if want.mode == GPU and shm["free_mib"] < _SHM_WISHED_MIB:
        warn(f"{shm['path']} has {shm['free_mib']} MiB free, less than {_SHM_WISHED_MIB} MiB")
    return f"{shm['free_mib']} MiB free"


def disk(facts: Facts, _: Want) -> str:
    """Judge the room where the test writes."""
    path, free, inodes = facts[0]["disk"].values()
    if free < _DISK_NEEDED_MIB or inodes == 0:
        what = "no inodes" if inodes == 0 else f"{free} MiB"
        fail(f"{path} has {what} free, the test needs {_DISK_NEEDED_MIB} MiB")
    if free < _DISK_WISHED_MIB:
        warn(f"{path} has {free} MiB free, less than {_DISK_WISHED_MIB} MiB")
    return f"{free} MiB free"


def finished(facts: Facts, _: Want) -> str:
    """Judge torchrun's end."""
    if code := facts[0]["ended"]:
        fail(f"exit code {code}")
    return "exit code 0"


# -- the kernel's log


@dataclass
class Cursor:
    """A place in the kernel's log, in the journal or else in the kernel's own buffer (`file`).

    Reading "the last hours" would blame this test for what happened before it. Who may read
    neither is told so (`reason`); nothing is concluded from a log that was not read.
    """

    journal: str = ""
    file: int = -1
    reason: str = ""


def mark() -> Cursor:
    """Return the present end of the kernel's log."""
    told = nvidia_smi.run([*_JOURNAL, "--lines=1", "--show-cursor"], 5)
    if told.ok and (found := _CURSOR.search(told.text)):
        return Cursor(journal=found[1])
    why = next(iter(told.text.strip().splitlines()), "no kernel messages in it")
    try:
        file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(file, 0, os.SEEK_END)
    except OSError as problem:
        return Cursor(reason=f"journal: {why}; /dev/kmsg: {problem.strerror}")
    return Cursor(file=file)


def since(cursor: Cursor) -> list[str] | None:
    """Return the last lines that came after `cursor`; None if it cannot be read."""
    if cursor.journal:
        told = nvidia_smi.run([*_JOURNAL, f"--after-cursor={cursor.journal}"], 5)
        return told.text.splitlines()[-_MOST_LINES:] if told.ok else None
    lines: list[str] = []
    while cursor.file >= 0:
        try:  # records are "priority,number,microseconds,flags;text"
            record = os.read(cursor.file, 8192).decode(errors="replace")
            lines.append(record.partition(";")[2].partition("\n")[0])
        except BlockingIOError:
            return lines[-_MOST_LINES:]
        except OSError as problem:
            if problem.errno != errno.EPIPE:  # that one was overwritten; the next is there
                return None
    return None


# -- afterwards


def after(
    lines: list[str] | None, reason: str, pids: Collection[int], left: Collection[int]
) -> dict[str, Any]:
    """Return the facts of S5 on any host.

    + lines: of the kernel's log since the test began, None if it cannot be read, for `reason`
    + pids: the processes of this test; left: those that were still there after its end
    """
    told = [line.strip() for line in lines or ()]
    kernel = {
        "reason": reason or "journalctl failed",
        "lines": lines,
        "own": [line for line in told if _of(line) in pids],
        "hardware": [line for line in told if _HARDWARE.search(line)],
    }
    xids = None if lines is None else xid.parse(told)
    return {"kernel": kernel, "xids": xids, "processes": sorted(left)}


def _of(line: str) -> int | None:
    found = _OF_A_PROCESS.search(line)
    return int(next(filter(None, found.groups()))) if found else None


def kernel_log(facts: Facts, _: Want) -> str:
    """Judge what the kernel said meanwhile of this test, or of the hardware."""
    kernel = facts[0]["kernel"]
    if kernel["lines"] is None:
        skip(f"the kernel's log cannot be read ({kernel['reason']})")
    if kernel["own"]:
        fail(f"the kernel reports that a process of this test was killed: {kernel['own'][0]}")
    if kernel["hardware"]:
        warn(f"the kernel reported a hardware error meanwhile: {kernel['hardware'][0]}")
    return f"{len(kernel['lines'])} new lines, none about this test"


def leftovers(facts: Facts, _: Want) -> str:
    """Judge what is left of the ranks."""
    if left := facts[0]["processes"]:
        fail(f"torchrun has ended and left processes {', '.join(map(str, left))}; they were ended")
    return "no process is left"
