"""The catalogue's steps for a run of this launcher's.

They are written for whoever types `torchrun` in a shell. A run is a unit of the user manager: what
a shell exports does not reach it, its logs are kept, it has a port of its own, and its interpreter
and its folders are known.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..diagnosis.matcher import Finding
from . import checkpoints, code, room, units
from .record import Run

DISK_FULL, MODULE = "HOST-01", "HOST-26"
"""Entries of the catalogue whose steps are others where the launcher knows the places."""

_LITTLE_MIB = 64  # free on a disk that is full for all that training writes
_DEPLOY = "`pyinfra INVENTORY deploy.py`"
_ASSIGNMENT = r"(?:[A-Z][A-Z0-9_]{3,50}|no_proxy)=[^\s`$]{1,120}"
_SET = re.compile(rf"`(?:export )?({_ASSIGNMENT}(?: {_ASSIGNMENT})*)(?: torchrun \.\.\.)?`")
_UNSET = re.compile(r"`unset ([A-Z][A-Z0-9_]+(?: [A-Z][A-Z0-9_]+)*)`")
_SHOWN = re.compile(r"`(?:env \| grep [^`]*|echo \"?\[?\$(?!PATH\b)[A-Z_]+\]?\"?)`")
_VARIABLE = re.compile(rf"`{_ASSIGNMENT}|its variables")
_KEPT_LOGS = re.compile(
    r"`(?:[A-Z]+=1 )?torchrun --log-dir logs [^`]*`( keeps one file per rank| and run again)?"
)
_TORCHRUN = re.compile(r"`[^`]*\btorchrun\b[^`]*`")
_BY_HAND = re.compile(r"\b(?:build|built|rebuild|compilers?|nvcc)\b|pip install|conda ")
"""Steps that are done in a shell: what it exports is for what it starts."""
_VARIABLES = "A run's variables are in its preset (`variables`) or `environment_variables`"
_PROCESSES = "`pgrep -u $USER -f torchrun`"
_NAMES = re.compile(r"\$([A-Z_]+)")
_PLACE = re.compile(r"(?<= )(?:FILE|PATH)\b(?=[^`]*`(?:[^`]*`[^`]*`)*[^`]*$)")
_NAMED = re.compile(r"'([^'\n]{1,300})'")
_MODULE = re.compile(r"No module named '?([\w.]{1,100})")


def adapted(run: Run, found: Finding) -> tuple[str, ...]:
    """Return what to do about a failure, in commands that are typed about this run."""
    if found.id == DISK_FULL and (known := tuple(_of_a_full_disk(run, found))):
        return known
    if found.id == MODULE and (name := _MODULE.search(found.evidence)) and run.command:
        return tuple(_of_a_module(run, name[1]))
    steps = [each for each in (_step(run, found, one) for one in found.fix) if each]
    for place, step in enumerate(steps):
        if run.preset and _VARIABLE.search(step) and not _BY_HAND.search(step):
            steps[place] = f"{step.rstrip('.')}. {_VARIABLES}"
            break
    return tuple(steps) or found.fix


def _step(run: Run, found: Finding, step: str) -> str:
    """Return one step; empty for one that only says how torchrun is to be started."""
    step = _KEPT_LOGS.sub(lambda kept: _logs(run, found, kept[0]), step)
    step = step.replace("Keep each rank's output", "Each rank's output is kept")
    step = step.replace(_PROCESSES, f"`systemctl --user status '{units.unit('*')}'`")
    step = step.replace("`train stop`", f"`train stop {run.name}`")
    step = step.replace("`train resume`", f"`train resume {run.name}`")
    if run.preset:
        step = step.replace("train start PRESET", f"train start {run.preset}")
        step = _SHOWN.sub(lambda shown: _shown(run, shown[0]), step)
    if not _BY_HAND.search(step):
        step = _UNSET.sub(lambda names: _without(names[1]), step)
        step = _SET.sub(lambda given: _with(given[1]), step)
    if (path := _path(run, found)) is not None:
        step = _PLACE.sub(lambda _: path, step)
    return "" if _TORCHRUN.search(step) else re.sub("^(take|leave)", _capital, step)


def _capital(found: re.Match[str]) -> str:
    return found[0].capitalize()


def _logs(run: Run, found: Finding, kept: str) -> str:
    """Return how the log of the rank that failed first is shown; each rank's is kept."""
    first = run.first_failed_rank
    rank = found.rank if first is None else first
    says = "" if kept.endswith("`") else " shows what it printed"
    return f"`train logs {run.name} --rank {rank or 0}`{says}"


def _shown(run: Run, looked_at: str) -> str:
    """Return what shows a run's variables, where a shell's were to be looked at."""
    names = " and ".join(_NAMES.findall(looked_at))
    return f"`train start {run.preset} --dry`{f' shows {names}' if names else ''}"


def _with(given: str) -> str:
    return "`--gpus`" if given.startswith("CUDA_VISIBLE_DEVICES=") else f"`{given}`"


def _without(names: str) -> str:
    # The launcher itself says which GPUs a run has.
    kept = [name for name in names.split() if name != "CUDA_VISIBLE_DEVICES"]
    return f"take {' and '.join(kept)} out of its variables" if kept else "leave out `--gpus`"


def _path(run: Run, found: Finding) -> str | None:
    """Return the file that the message names, as it is typed from anywhere; None for none."""
    names = [name for name in _NAMED.findall(found.evidence) if "/" in name or "." in name]
    if not names:
        return None
    return shlex.quote(str(run.folder / code.WORKTREE / names[0]))


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


def _of_a_full_disk(run: Run, found: Finding) -> Iterator[str]:
    named = [Path(name) for name in _NAMED.findall(found.evidence) if name.startswith("/")]
    folders = list(dict.fromkeys([*map(room.above, named), *(full(run) or places(run))]))
    if not folders:
        return
    shown = shlex.join(map(str, folders))
    yield f"Which one of those that it writes to: `df -h {shown}; df -i {shown}`"
    largest = f"du -xh --max-depth=2 {shlex.quote(str(folders[0]))} | sort -h | tail -15"
    yield (
        f"What fills it: `{largest}`; old checkpoints are mostly the largest, move those that"
        " nobody needs"
    )
    if run.preset and run.checkpoints:
        yield (
            "Or more room: name another folder for the checkpoints, with `--set` where an argument"
            f" of preset {run.preset} has it, and let `checkpoint_gib` say how much one takes: a"
            " start then sees to it that two of them fit"
        )
    yield from (step for step in found.fix if step.startswith(("Caches", "It is /dev/shm")))


# -- a module that is not there


def _of_a_module(run: Run, name: str) -> Iterator[str]:
    python = run.command[0]
    yield f"See whether the environment of the runs has it: `{python} -c 'import {name}'`"
    yield (
        "It is a requirement: name the file in the repository that has it as"
        f" `training_requirements`, then {_DEPLOY}"
    )
    yield (
        "It is the project's own package: the program begins in the repository's folder, so give"
        f" the preset {run.preset or 'PRESET'} 'module' in place of 'file'"
    )
