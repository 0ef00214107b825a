"""S0 and S5: what any host must have before a test makes sense, and what a test has left behind."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .check import Check, Facts, Want, fail, skip, warn
from .options import GPU

SHM = Path("/dev/shm")  # noqa: S108 - the very directory that is tested
_MIB = 2**20
_SHM_WISHED_MIB = 1024
"""NCCL's documentation tells people to raise the 64 MiB that a container has by default to this."""
_DISK_NEEDED_MIB, _DISK_WISHED_MIB = 64, 1024
"""Logs, verdict and compiled kernels need less than the first, a checkpoint more than that."""
MOST_LINES = 400
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
        "shm": _shared_memory(SHM, shm_trial_mib(mode)),
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
        sizes = sorted(((each.st_size, name) for name, each in _entries(path)), reverse=True)
        fact["largest"] = [[name, size // _MIB] for size, name in sizes[:3]]
    return fact


def _entries(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    with suppress(OSError):
        for entry in os.scandir(path):
            with suppress(OSError):  # gone meanwhile
                yield entry.name, entry.stat(follow_symlinks=False)


def _variables(facts: Facts, _: Want) -> str:
    if names := facts[0]["variables"]:
        warn(f"set here and removed for this test only: {', '.join(names)}; unset where it is set")
    return ""


def _shm(facts: Facts, want: Want) -> str:
    shm = facts[0]["shm"]
    if shm["error"]:
        largest = ", ".join(f"{name} ({size} MiB)" for name, size in shm["largest"])
        known = f" ({shm['size_mib']} MiB, {shm['free_mib']} free)" if "size_mib" in shm else ""
        detail = f"{shm['trial_mib']} MiB cannot be allocated in {shm['path']}{known}"
        fail(f"{detail}: {shm['error']}" + (f"; largest files: {largest}" if largest else ""))
    if want.mode == GPU and shm["free_mib"] < _SHM_WISHED_MIB:
        warn(f"{shm['path']} has {shm['free_mib']} MiB free, less than {_SHM_WISHED_MIB} MiB")
    return f"{shm['free_mib']} MiB free"


def _disk(facts: Facts, _: Want) -> str:
    path, free, inodes = facts[0]["disk"].values()
    if free < _DISK_NEEDED_MIB or inodes == 0:
        what = "no inodes" if inodes == 0 else f"{free} MiB"
        fail(f"{path} has {what} free, the test needs {_DISK_NEEDED_MIB} MiB")
    if free < _DISK_WISHED_MIB:
        warn(f"{path} has {free} MiB free, less than {_DISK_WISHED_MIB} MiB")
    return f"{free} MiB free"


BEFORE = (
    Check("S0.environment", ("variables",), _variables),
    Check("S0.shm", ("shm",), _shm),
    Check("S0.disk", ("disk",), _disk),
)


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
    code, output, error = _journalctl("--lines=1", "--show-cursor", "--quiet")
    if code == 0 and (found := _CURSOR.search(output)):
        return Cursor(journal=found[1])
    why = error.strip().splitlines()[0] if error.strip() else "no kernel messages in it"
    try:
        file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(file, 0, os.SEEK_END)
    except OSError as problem:
        return Cursor(reason=f"journal: {why}; /dev/kmsg: {problem.strerror}")
    return Cursor(file=file)


def since(cursor: Cursor) -> list[str] | None:
    """Return the lines that came after `cursor`, at most MOST_LINES; None if it cannot be read."""
    if cursor.journal:
        code, output, _ = _journalctl(f"--after-cursor={cursor.journal}", "--quiet")
        return output.splitlines()[-MOST_LINES:] if code == 0 else None
    lines: list[str] = []
    while cursor.file >= 0:
        try:  # records are "priority,number,microseconds,flags;text"
            record = os.read(cursor.file, 8192).decode(errors="replace")
            lines.append(record.partition(";")[2].partition("\n")[0])
        except BlockingIOError:
            return lines[-MOST_LINES:]
        except OSError as problem:
            if problem.errno != errno.EPIPE:  # that one was overwritten; the next is there
                return None
    return None


def _journalctl(*arguments: str) -> tuple[int, str, str]:
    command = ["journalctl", "--dmesg", "--no-pager", "--output=short-monotonic", *arguments]
    try:
        run = subprocess.run(
            command, capture_output=True, timeout=5, check=False, text=True, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return 1, "", str(problem)
    return run.returncode, run.stdout, run.stderr


# -- afterwards


def after(
    lines: Sequence[str] | None,
    cursor: Cursor,
    pids: Collection[int],
    left: Collection[int],
) -> dict[str, Any]:
    """Return the facts of S5 on any host.

    + lines: of the kernel's log since the test began, None if it cannot be read
    + pids: the processes of this test; left: those that were still there after its end
    """
    kernel: dict[str, Any] = {"reason": cursor.reason, "lines": None, "own": [], "hardware": []}
    if lines is not None:
        own = [line.strip() for line in lines if _of(line) in pids]
        hardware = [line.strip() for line in lines if _HARDWARE.search(line)]
        kernel |= {"lines": len(lines), "own": own, "hardware": hardware}
    return {"kernel": kernel, "processes": sorted(left)}


def _of(line: str) -> int | None:
    found = _OF_A_PROCESS.search(line)
    return int(next(filter(None, found.groups()))) if found else None


def _kernel_log(facts: Facts, _: Want) -> str:
    kernel = facts[0]["kernel"]
    if kernel["lines"] is None:
        skip(f"the kernel's log cannot be read ({kernel['reason'] or 'journalctl failed'})")
    if kernel["own"]:
        fail(f"the kernel reports that a process of this test was killed: {kernel['own'][0]}")
    if kernel["hardware"]:
        warn(f"the kernel reported a hardware error meanwhile: {kernel['hardware'][0]}")
    return f"{kernel['lines']} new lines, none about this test"


def _leftovers(facts: Facts, _: Want) -> str:
    if left := facts[0]["processes"]:
        fail(f"torchrun has ended and left processes {', '.join(map(str, left))}; they were ended")
    return "no process is left"


AFTER = (
    Check("S5.kernel_log", ("kernel",), _kernel_log),
    Check("S5.leftovers", ("processes",), _leftovers),
)
