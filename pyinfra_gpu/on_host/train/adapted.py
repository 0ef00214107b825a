"""The catalogue's steps for a run of this launcher's: their places filled from its record."""

from __future__ import annotations

import re
import shlex
import shutil
from functools import partial
from pathlib import Path

from ..diagnosis.matcher import Finding
from ..diagnosis.steps import changes_variables, filled
from . import checkpoints, code, room, units
from .record import Run

_LITTLE_MIB = 64  # free on a disk that is full for all that training writes
_VARIABLES = "A run's variables are in its preset (`variables`) or `environment_variables`"
_NAMED = re.compile(r"'([^'\n]{1,300})'")


def adapted(run: Run, found: Finding) -> tuple[str, ...]:
    """Return what to do about a failure, in commands that are typed about this run."""
    word, command = partial(_word, run, found), partial(_command, run)
    steps = [filled(text, word, command) for text in found.run_fix]
    changing = (at for at, text in enumerate(found.run_fix) if changes_variables(text))
    if (first := next(changing, None)) is not None:
        steps[first] = f"{steps[first].rstrip('.')}. {_VARIABLES}"
    return tuple(re.sub("^take ", "Take ", step) for step in steps)


def _word(run: Run, found: Finding, place: str) -> str:
    """Return what this run has at a place of `steps.PLACES`; empty where that is not known."""
    match place:
        case "file" | "path":
            return _file(run, found)
        case "folder":
            return shlex.join(map(str, _full(run, found)[:1]))
        case "folders":
            return shlex.join(map(str, _full(run, found)))
        case "preset":
            return run.preset
        case "python":
            return run.command[0] if run.command else ""
        case "rank":
            first = run.first_failed_rank
            return str((found.rank if first is None else first) or 0)
        case "run":
            return run.name
        case _:
            return shlex.quote(units.unit(run.name))


def _command(run: Run, typed: str) -> str:
    """Return what a run has in place of a command about the variables of a shell."""
    verb, *names = typed.split()
    if verb == "unset":
        listed = " and ".join([", ".join(names[:-1]), names[-1]]) if names[1:] else names[0]
        return f"take {listed} out of its variables"
    if verb in ("env", "echo"):
        return f"`train start {run.preset or 'PRESET'} --dry`"
    return f"`{typed.removeprefix('export ')}`"


def _file(run: Run, found: Finding) -> str:
    """Return the file that the message names, as it is typed from anywhere."""
    names = [name for name in _NAMED.findall(found.evidence) if "/" in name or "." in name]
    return shlex.quote(str(run.folder / code.WORKTREE / names[0])) if names else ""


# -- a disk that is full


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


def _full(run: Run, found: Finding) -> list[Path]:
    """Return the folders whose disk may be the full one, those that the message names first."""
    named = [Path(name) for name in _NAMED.findall(found.evidence) if name.startswith("/")]
    return list(dict.fromkeys([*map(room.above, named), *(full(run) or places(run))]))
