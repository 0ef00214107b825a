"""Linux process control the standard library lacks: who descends from whom, and dying together."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Process:
    """One process as /proc/PID/stat shows it."""

    pid: int
    parent: int
    state: str


def read(pid: int) -> Process | None:
    """Return process `pid`, None if there is none (a zombie is one, in state "Z")."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    state, parent = text[text.rindex(")") + 1 :].split()[:2]  # the name may hold anything
    return Process(pid, int(parent), state)


def alive(pid: int) -> bool:
    """Return whether `pid` still runs: it exists and is not a zombie."""
    process = read(pid)
    return process is not None and process.state not in "ZX"


def descendants(ancestor: int) -> list[Process]:
    """Return all processes below `ancestor`, zombies included."""
    found = [read(int(name)) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    children: dict[int, list[Process]] = {}
    for process in found:
        if process is not None:
            children.setdefault(process.parent, []).append(process)
    below: list[Process] = []
    waiting = [ancestor]
    while waiting:
        direct = children.get(waiting.pop(), [])
        below.extend(direct)
        waiting.extend(process.pid for process in direct)
    return below


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process, so that `descendants` finds them all."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, however that ends.

    Belongs to the parent's thread that forked us; survives exec; is not inherited by children.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def tie_to(launcher_pid: int, generations: int) -> None:
    """Die with this process's parent; leave at once if the launcher has ended already.

    + generations: how far above this process the launcher is, 1 for its parent
    """
    die_with_parent()
    above: Process | None = read(os.getpid())
    for _ in range(generations):
        above = read(above.parent) if above is not None else None
    if above is None or above.pid != launcher_pid:
        sys.exit("the launcher of this smoke test has ended")


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded here, as little as possible is done after fork
