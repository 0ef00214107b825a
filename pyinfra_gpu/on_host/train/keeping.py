"""Old runs go, by data: their logs and their code, and never a checkpoint."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from . import checkpoints, presets
from .errors import TrainError
from .rundir import Run, all_runs
from .running import child
from .site import Site

_LIGHT = ("run.json", "request.json", "metrics.jsonl", "packages.txt")
"""What is kept of a run that still has checkpoints: enough to resume and to repeat it."""


def forget_old(site: Site) -> None:
    """Remove the oldest ended runs beyond those that are to be kept.

    One that has checkpoints in its folder keeps them, and what it takes to go on from them.
    """
    if not site.keep_runs:
        return
    ended = [run for run in all_runs(site) if _has_ended(run)]
    for run in ended[: -site.keep_runs]:
        with contextlib.suppress(OSError, TrainError, ValueError, KeyError, TypeError):
            _forget(run)


def _has_ended(run: Run) -> bool:
    try:
        return bool(run.settled()["state"] == "ended")
    except TrainError:
        return False


def _forget(run: Run) -> None:
    request = run.request()
    preset = presets.from_json(request["preset"])
    values = child.values(run.folder, preset, int(request["ranks"]))
    inside = [
        path
        for each in checkpoints.found(preset, values)
        for path in _inside(each.path, run.folder)
    ]
    if not inside:
        shutil.rmtree(run.folder)
        return
    names = (*_LIGHT, *(str(name) for _, _, name in request["code"]))
    kept = {run.folder / name for name in names}
    for path in run.folder.iterdir():
        holds = any(each == path or each.is_relative_to(path) for each in inside)
        if path not in kept and not holds:
            _remove(path)


def _inside(path: Path, folder: Path) -> list[Path]:
    """Return where in a folder something lies, by its name and by where links lead."""
    found = [path] if path.is_relative_to(folder) else []
    # Of links in a circle Path.resolve would make an error of its own.
    resolved, real = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    return [*found, folder / resolved.relative_to(real)] if resolved.is_relative_to(real) else found


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
