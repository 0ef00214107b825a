"""What is there to explain a run by: the ends of its logs, and what the kernel said meanwhile."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from .explanation import LAST_LINES
from .record import Run, rank_of, tail_of, unstamped

_TAIL = 256 << 10  # bytes of one rank's log
_MOST_LOGS = 16
_KERNEL_LIMIT_S = 5.0

Kernel = Callable[[float], Sequence[str]]
"""Returns the kernel's lines since a moment, as far as this user may read them."""


def logs(run: Run) -> dict[str, str]:
    """Return the ends of the logs by name, that of the rank that failed first before the others."""
    first = run.first_failed_rank
    ends = sorted(run.logs()[:_MOST_LOGS], key=lambda log: rank_of(log) != first)
    found = {f"rank {rank_of(log)}": _text(log) for log in ends}
    if run.last is not None:
        found["launcher"] = _text(_launcher_log(run))
    return {name: text for name, text in found.items() if text}


def launchers_last_words(run: Run) -> list[str]:
    """Return the last lines of what starts the ranks."""
    return [unstamped(line)[1] for line in tail_of(_launcher_log(run), _TAIL)[-LAST_LINES:]]


def _launcher_log(run: Run) -> Path:
    number = run.last.number if run.last else 1
    return run.folder / "attempts" / str(number) / "launcher.log"


def _text(log: Path) -> str:
    return "\n".join(unstamped(line)[1] for line in tail_of(log, _TAIL))


def last_words(run: Run, first: int | None) -> list[str]:
    """Return the last lines of the rank that failed first, else of rank 0."""
    shown = _shown(run, first)
    return [unstamped(line)[1] for line in tail_of(shown, _TAIL)[-LAST_LINES:]] if shown else []


def more(run: Run, first: int | None) -> list[str]:
    """Return the words behind `train` that show the whole of the log whose last words these are."""
    shown = _shown(run, first)
    if shown is None or not last_words(run, first):
        return ["logs", run.name, "--launcher"]
    rank = rank_of(shown)
    return ["logs", run.name, *(["--rank", str(rank)] if rank else [])]


def _shown(run: Run, first: int | None) -> Path | None:
    """Return the log of the rank that failed first, else of rank 0, else of any."""
    return min(run.logs(), key=lambda log: rank_of(log) != (first or 0), default=None)


def kernel_said(run: Run, kernel: Kernel) -> str:
    """Return what the kernel said during the last attempt that can end a program."""
    started = run.last.started if run.last else None
    telling = ("Out of memory", "oom-kill", "Killed process", "Xid", "NVRM", "I/O error")
    lines = kernel(started) if started is not None else ()
    return "\n".join(line for line in lines if any(word in line for word in telling))


def kernel_lines(since: float) -> Sequence[str]:
    """Return what the kernel said since then; nothing where this user may not read it."""
    command = ["journalctl", "-k", "-q", "--no-pager", "-o", "short", "-n", "2000"]
    try:
        done = subprocess.run(
            [*command, "--since", f"@{since:.0f}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_KERNEL_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return done.stdout[-(1 << 20) :].decode("utf-8", "replace").splitlines()
