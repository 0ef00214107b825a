"""What is learnt from a hang: where every process stands, and which layer it hangs in."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from .environment import PIPES, RECORDINGS
from .nvidia_smi import run as output_of

EXTRA_S = 60
"""Seconds beyond the test's deadline that all reruns together may take."""
_EACH_S = 15
_STACK_WAIT = 0.3
_RECORDER_WAIT = 2.0
_ANALYSER_S = 30


def ask_for_stacks(pids: Iterable[int], directory: Path) -> None:
    """Have these ranks write down where they are, and NCCL's flight recorder in each the last
    collectives: that one waits at a named pipe.
    """
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
    asked = 0
    for pipe in (directory / PIPES).glob("*"):
        with suppress(OSError):  # nobody reads it: the rank has gone
            file = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(file, b"1\n")
            os.close(file)
            asked += 1
    limit = time.monotonic() + _RECORDER_WAIT
    time.sleep(_STACK_WAIT)
    while asked > len(_recordings(directory)) and time.monotonic() < limit:
        time.sleep(_STACK_WAIT)


def stack_file(directory: Path, rank: int) -> Path:
    """Return the file for the stacks of a rank, which it writes when it gets SIGUSR1."""
    return directory / f"rank{rank}.stack"


def main_stack(lines: Sequence[str]) -> list[str]:
    """Return up to 30 lines of what faulthandler tells of the current thread."""
    begins = [number for number, line in enumerate(lines) if line.startswith("Current")]
    return list(lines[begins[-1] :] if begins else lines)[:30]


def _recordings(directory: Path) -> list[Path]:
    """Return the files in which flight recorders wrote, one a rank, named by its number."""
    files = (directory / RECORDINGS).glob("rank*")
    return sorted(path for path in files if path.stat().st_size)


def collectives(directory: Path) -> list[str]:
    """Return what torch's analyser of flight recordings says of those in `directory`."""
    if not _recordings(directory):
        return []
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace"]
    command += [str(directory / RECORDINGS), "--prefix", "rank", "--allow-incomplete-ranks"]
    return output_of(command, _ANALYSER_S).text.splitlines()


Variables = Mapping[str, str | None]
"""Set for one more try of the all-reduce, or removed where None."""
OWN_CHOICE: Variables = {"NCCL_SOCKET_IFNAME": None}
_NO_P2P = {"NCCL_P2P_DISABLE": "1"}
Layers = Sequence[tuple[Mapping[str, str], str]]
LAYERS: Layers = (
    (_NO_P2P, "direct copies from GPU to GPU move no data; look at IOMMU and ACS"),
    (
        {**_NO_P2P, "NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket"},
        "NCCL's shared-memory transport; look at /dev/shm and its size",
    ),
)
"""What to look at if an all-reduce that hung passes with these."""

Result = Literal["passed", "hung", "not reached"]
"""How a try ended; not reached: before all ranks came to an all-reduce, so it tells nothing."""
Attempt = Callable[[Variables, float], Result]
"""Try the all-reduce until a moment on the monotonic clock; return how that ended."""


def locate(layers: Layers, attempt: Attempt, until: float) -> str:
    """Repeat the all-reduce, changing one thing at a time, until it passes; return in one sentence
    what that shows. Only what passes after the unchanged one hung shows anything.

    + until: when all must have ended, on the monotonic clock
    """
    for variables, layer in ({}, ""), *layers:
        began = time.monotonic()
        if until - began < 1:
            return "there was no time left for further tries"
        result = attempt(variables, min(until, began + _EACH_S))
        if result == "passed" and not variables:
            return "a small all-reduce alone passes here, so the hang is not in its layers"
        if result == "passed":
            changed = " ".join(f"{name}={value}" for name, value in variables.items())
            return f"it passes with {changed}, which points to this: {layer}"
        if result == "not reached" and not variables:
            slow = f"came to no all-reduce in {time.monotonic() - began:.0f} s"
            return f"a further try {slow}, so where it hangs is not known"
    return f"none of {1 + len(layers)} tries with other settings passes"
