"""S5, what a test has left behind: in the kernel's log, among the processes, in shared memory."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ..judge.check import Check, Expected, Facts, Finding
from .host_checks import SHM

_OF_A_PROCESS = (
    (re.compile(r"Killed process (?P<pid>\d+)"), "the kernel ran out of memory and killed"),
    (re.compile(r"\[(?P<pid>\d+)\]: segfault at"), "the kernel reports a segmentation fault of"),
    (re.compile(r"\[(?P<pid>\d+)\] (?:general protection|trap )"), "the kernel reports a trap of"),
)
"""What the kernel says of a process (mm/oom_kill.c, arch/x86/mm/fault.c, arch/x86/kernel/traps.c),
and how it is told here."""
_HARDWARE = re.compile(
    r"\[Hardware Error\]|mce: .*(?:error|event)|EDAC \S+: \d+ [CU]E", re.IGNORECASE
)


def shared_files(path: Path = SHM) -> list[str]:
    """Return the names in shared memory that belong to this user; those seen before a test are
    not its own.
    """
    try:
        entries = list(path.iterdir())
    except OSError:
        return []
    return sorted(entry.name for entry in entries if _own(entry))


def _own(entry: Path) -> bool:
    try:
        return entry.lstat().st_uid == os.getuid()
    except OSError:  # gone meanwhile
        return False


def abandoned(before: Collection[str], path: Path = SHM) -> list[str]:
    """Return the files of this user that were not there `before` and that no process has open.

    A process that still runs may be another program of this user's, whose files these are.
    """
    new = [name for name in shared_files(path) if name not in before]
    return [name for name in new if not _in_use(path / name)] if new else []


def _in_use(file: Path) -> bool:
    wanted = str(file)
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if wanted in (process / "maps").read_text(errors="replace"):
                return True
            if any(os.readlink(each) == wanted for each in (process / "fd").iterdir()):  # noqa: PTH115
                return True
        except OSError:  # another user's process, or one that has just ended
            continue
    return False


def kernel_fact(lines: Sequence[str] | None, reason: str, pids: Collection[int]) -> dict[str, Any]:
    """Return the fact "kernel": what of the new `lines` of the kernel's log concerns this test.

    + lines: None if they could not be read, for `reason`
    + pids: the processes of this test
    """
    if lines is None:
        return {"lines": None, "reason": reason, "own": [], "hardware": []}
    own = []
    for line in lines:
        for pattern, sentence in _OF_A_PROCESS:
            found = pattern.search(line)
            if found and int(found["pid"]) in pids:
                own.append(f"{sentence} process {found['pid']}: {line.strip()}")
    hardware = [line.strip() for line in lines if _HARDWARE.search(line)]
    return {"lines": len(lines), "reason": "", "own": own, "hardware": hardware}


def _kernel(facts: Facts, _: Expected) -> Finding:
    kernel = facts[0]["kernel"]
    if kernel["lines"] is None:
        detail = f"the kernel's log cannot be read ({kernel['reason']})"
        return Finding(True, None, None, detail, status="skip")
    if kernel["own"]:
        return Finding(False, kernel["own"], [], kernel["own"][0])
    if kernel["hardware"]:
        detail = f"the kernel reported a hardware error meanwhile: {kernel['hardware'][0]}"
        return Finding(True, kernel["hardware"], [], detail, status="warn")
    return Finding(True, [], [], f"{kernel['lines']} new lines, none about this test")


def _processes(facts: Facts, _: Expected) -> Finding:
    left = facts[0]["processes"]
    if not left:
        return Finding(True, [], [], "no process is left")
    names = ", ".join(map(str, left))
    detail = f"torchrun has ended and left processes {names}, which were then ended"
    return Finding(False, left, [], detail)


def _shared(facts: Facts, _: Expected) -> Finding:
    left = facts[0]["shared_files"]
    if not left:
        return Finding(True, [], [], "no file is left in /dev/shm")
    paths = " ".join(str(SHM / name) for name in left[:5])
    detail = f"files of nobody are left in shared memory, remove them: rm {paths}"
    return Finding(True, left, [], detail, status="warn")


CHECKS: tuple[Check, ...] = (
    Check("S5.kernel_log", ("kernel",), _kernel),
    Check("S5.leftovers", ("processes",), _processes),
    Check("S5.shared_files", ("shared_files",), _shared),
)
