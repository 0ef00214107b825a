"""Processes that can be ended, whatever happens to whom.

torchrun puts each rank in a session of its own, so no process group holds them all. All that a run
starts carries its mark in the environment instead, by which it is found; and what the launcher
starts is killed by the kernel when the launcher ends, as the ranks are with torchrun.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_MARK = "PYINFRA_GPU_SMOKE_TEST"
"""The variable that all processes of a test carry; its value names launcher and folder."""
_TERM_GRACE, _KILL_LIMIT = 2.0, 5.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)  # loaded here: as little as possible is done after a fork


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, however that ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def start(
    command: Sequence[str], environment: Mapping[str, str], directory: Path, log: Path
) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own, with the mark, its output in `log`."""
    launcher = os.getpid()

    def before_exec() -> None:
        die_with_parent()
        if os.getppid() != launcher:  # it ended before the line above took effect
            os._exit(1)

    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            env={**environment, _MARK: f"{launcher}:{directory}"},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=before_exec,  # safe: the launcher has one thread
        )


def running(directory: Path) -> list[int]:
    """Return the processes that this launcher started in `directory` and that still run."""
    mark, found = f"{_MARK}={os.getpid()}:{directory}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's; of a zombie it is empty
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return sorted(found)


def end(directory: Path) -> None:
    """End all that this launcher started in `directory`: SIGTERM, and 2 s later SIGKILL.

    Raises TimeoutError if a process survives SIGKILL (stuck in the kernel).
    """
    began = time.monotonic()
    while left := running(directory):
        waited = time.monotonic() - began
        if waited > _TERM_GRACE + _KILL_LIMIT:
            raise TimeoutError(f"processes {left} survive SIGKILL")
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if waited < _TERM_GRACE else signal.SIGKILL)
        time.sleep(0.1)
