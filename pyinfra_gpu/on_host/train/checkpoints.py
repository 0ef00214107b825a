"""Which checkpoints a run has left, and which of them is whole."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from pathlib import Path

from . import code, presets
from .presets import Preset

_STEP = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that is complete; `step` as its name has it, with its leading zeros."""

    path: Path
    step: str

    @property
    def changed(self) -> float:
        """When it was written, in seconds since 1970; raises OSError where it is gone."""
        return self.path.stat().st_mtime


def newest(
    preset: Preset, values: dict[str, object], ranks: int, since: float
) -> Checkpoint | None:
    """Return the newest complete checkpoint, by the number in its name; None where there is none.

    + values: what `{...}` stands for
    + ranks: that the run has: each of them must have left its files, and nobody else
    + since: the run's beginning, in seconds since 1970; what is older is another run's
    """
    for each in reversed(found(preset, values)):
        if each.changed >= since and complete(preset, each, values, ranks):
            return each
    return None


def place(preset: Preset, values: dict[str, object]) -> str | None:
    """Return the glob that matches the checkpoints; None where the preset has none.

    It is absolute: what is relative begins in the folder in which the program runs.

    + values: what `{...}` stands for, the run's folder among it
    """
    if preset.checkpoints is None:
        return None
    pattern = presets.filled(preset.checkpoints, values)
    if Path(pattern).is_absolute():
        return pattern
    # glob would read characters of the run's own folder, which is a name and no pattern.
    worktree = glob.escape(str(Path(str(values["run"])) / code.WORKTREE))
    return os.path.normpath(f"{worktree}/{pattern}")


def folder_of(pattern: str) -> Path:
    """Return the folder below which all that a glob matches lies, as far as the glob names it."""
    named = []
    for part in Path(pattern).parts[:-1]:
        if glob.has_magic(part):
            break
        named.append(part)
    return Path(*named)


def argument(preset: Preset) -> str | None:
    """Return the argument of a preset that says where checkpoints go; None where none does."""
    names = presets.places(preset.checkpoints or "")
    return next((name for name in names if name in preset.arguments), None)


def found(preset: Preset, values: dict[str, object]) -> list[Checkpoint]:
    """Return all checkpoints, complete or not, in the order of their steps."""
    pattern = place(preset, values)
    if pattern is None:
        return []
    known = []
    for name in glob.glob(pattern):  # noqa: PTH207 - the pattern is absolute
        numbers = _STEP.findall(Path(name).name)
        known.append(Checkpoint(Path(name), numbers[-1] if numbers else ""))
    return sorted(known, key=lambda each: (int(each.step or 0), each.path))


def complete(preset: Preset, each: Checkpoint, values: dict[str, object], ranks: int) -> bool:
    """Tell whether all files of a checkpoint are there, none is empty, and the ranks are these."""
    folder = each.path if each.path.is_dir() else each.path.parent
    known = {**values, "checkpoint": str(each.path), "step": each.step or "*"}
    if each.path.is_file() and not each.path.stat().st_size:
        return False
    for pattern in preset.complete:
        if "{rank}" not in pattern:
            if not _filled(folder / presets.filled(pattern, known)):
                return False
            continue
        names = [presets.filled(pattern, {**known, "rank": rank}) for rank in range(ranks)]
        if not all(_filled(folder / name) for name in names):
            return False
        if (folder / presets.filled(pattern, {**known, "rank": ranks})).exists():
            return False
    return True


def _filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
