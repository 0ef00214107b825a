"""The control group of the run: whatever a program starts, and however it hides, is in it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

_LOOK_S = 0.1
_KILLED_S = 20.0


def folder(unit: str) -> Path | None:
    """Return the folder of this process's control group, None where that is not the unit's.

    Whoever calls the supervisor by hand is in a group with all that they do beside it.
    """
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        number, _, path = line.split(":", 2)
        if number == "0":
            for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                found = Path(root) / path.lstrip("/")
                if found.name == unit and (found / "cgroup.procs").exists():
                    return found
    return None


def members(group: Path, without: Collection[int]) -> list[int]:
    """Return the processes of the group and of those below it, but for these."""
    found = []
    for path in (group, *group.rglob("*/")):
        with contextlib.suppress(OSError):
            words = (path / "cgroup.procs").read_text(encoding="ascii").split()
            found += [int(word) for word in words]
    return [pid for pid in found if pid not in without]


def send(pids: Collection[int], number: signal.Signals) -> None:
    """Send a signal to each of these."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def empty(group: Path | None, without: Collection[int], grace: float) -> bool:
    """End all processes but these: SIGTERM, `grace` seconds, SIGKILL; return whether all ended."""
    if group is None:
        return False  # systemd does it when this process ends
    send(members(group, without), signal.SIGTERM)
    until = time.monotonic() + grace
    while members(group, without) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    until = time.monotonic() + _KILLED_S
    while left := members(group, without):
        if time.monotonic() > until:
            return False
        send(left, signal.SIGKILL)
        time.sleep(_LOOK_S / 4)
    return True
