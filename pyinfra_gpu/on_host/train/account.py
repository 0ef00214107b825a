"""What became of a run, and what its host says of it, in sentences."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from . import checkpoints, room, unwritten, words
from .record import Run
from .watch.history import History

_LITTLE_MIB = 64  # free on a disk that is full for all that training writes
_KILLED = (-9, 128 + 9)  # by SIGKILL; of torchrun itself, or of the one process of a preset


def what(run: Run, history: History, now: float) -> str:
    """Say what became of a run, and at which step."""
    last, name, place = run.last, f"run {run.name}", _place(run, history)
    if last is None or not run.over:
        if (waited := history.stalled(now)) is not None:
            return f"{name} stands still{place}: no step for {words.duration(waited)}"
        return f"{name} goes on{place}, and its loss is no number any more"
    if run.cut_off:
        return f"{name} was lost{place}: the host was started anew"
    if run.unsupervised:
        # When it ended nobody wrote down: the moment in the record is that of the first look.
        return f"{name} was lost{place}: its supervisor was ended"
    after = ""
    if last.started is not None and last.ended is not None:
        after = f" after {words.duration(last.ended - last.started)}"
    if last.outcome == "finished":
        return f"{name} finished{after}: nothing has failed"
    word = {"lost": "was lost", "stopped": "was stopped"}.get(last.outcome, last.outcome or "ended")
    return f"{name} {word}{after}{place}"


def _place(run: Run, history: History) -> str:
    at = history.last.get("step")
    if at is not None:
        return f" at step {at:,.0f}"
    return "" if run.across else " before its first step"  # of several hosts one prints the steps


def facts(run: Run, first: int | None) -> Iterator[str]:
    """Tell what the host says, where it says more than the log."""
    last = run.last
    yield from before(run)
    yield from stopped_by(run)
    if unwritten.kept(run.folder):
        yield unwritten.TOLD
    if run.waits:
        yield run.waits
    if first is not None and run.nproc and run.nproc > 1:
        yield f"rank {first} of {run.nproc} failed first; the others were ended after it"
    if last is not None and last.exit is not None and last.exit not in (0, 1):
        yield f"exit code {last.exit}{_signal(last.exit)}"
    for folder, free in full(run).items():
        yield f"the disk that holds {folder} is full now: {free} MiB are free"


def stopped_by(run: Run) -> Iterator[str]:
    """Tell who stopped it; a shutdown, which stops it as well, is nobody."""
    if run.last is not None and run.last.stopped_by:
        yield f"it was stopped by {run.last.stopped_by}"


def before(run: Run) -> Iterator[str]:
    """Tell of the attempt before the last one."""
    if len(run.attempts) < 2:
        return
    earlier, last = run.attempts[-2:]
    cause = f" ({earlier.cause})" if earlier.cause else ""
    point = Path(last.resumed_from).name if last.resumed_from else "the beginning"
    yield f"attempt {earlier.number} {earlier.outcome}{cause}; {last.number} began from {point}"


def _signal(code: int) -> str:
    number = -code if code < 0 else code - 128
    names = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM", 7: "SIGBUS"}
    return f" ({names[number]})" if number in names else ""


def own_words(run: Run, history: History, now: float) -> Iterator[str]:
    """Say what no log does, as the catalogue knows it."""
    over = run.over
    ended = run.last.ended if run.last and run.last.ended is not None else now
    waited = history.stalled(ended if over else now)
    if waited is not None and not (run.cut_off or run.unsupervised):
        yield f"train: no step for {waited:.0f} s, where one takes {history.pace() or 0:.2f} s"
    if run.last and run.last.outcome == "failed" and run.last.exit in _KILLED:
        yield "train: the program was killed by SIGKILL"
    if run.cut_off:
        yield f"train: the host was started anew while run {run.name} was on"
    if run.unsupervised:
        yield f"train: the supervisor of run {run.name} was ended before the run was"
    if history.not_finite:
        at, word = history.not_finite
        yield f"train: the loss is {word} since step {at if at is not None else 0}"


def places(run: Run) -> list[Path]:
    """Return the folders that a run writes to, each on a file system of its own."""
    folders = [run.folder.parent]
    if run.checkpoints:
        folders.append(room.above(checkpoints.folder_of(run.checkpoints)))
    found: dict[object, Path] = {}
    for folder in folders:
        try:
            found.setdefault(_device(folder), folder)
        except OSError:
            continue
    return [*found.values()]


def _device(folder: Path) -> object:
    return folder.stat().st_dev


def full(run: Run) -> dict[Path, int]:
    """Return of these folders those whose disk is full now, and the MiB that are free there."""
    found = {}
    for folder in places(run):
        try:
            free = shutil.disk_usage(folder).free >> 20
        except OSError:
            continue
        if free < _LITTLE_MIB:
            found[folder] = free
    return found
