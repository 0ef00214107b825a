"""Checkpoints of a run: which there are, and the newest one that is whole."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import code
from .presets import Preset, filled, places


@dataclass(frozen=True)
class Checkpoint:
    """+ step: the digits in its name, as they stand there."""

    path: Path
    step: str

    @property
    def changed(self) -> float:
        return self.path.stat().st_mtime


def newest(
    preset: Preset, values: Mapping[str, object], ranks: int, since: float
) -> Checkpoint | None:
    """Return the newest complete one that was written since a moment.

    + ranks: of all hosts
    """
    for each in reversed(found(preset, values)):
        if each.changed >= since and _complete(preset, each, values, ranks):
            return each
    return None


def found(preset: Preset, values: Mapping[str, object]) -> list[Checkpoint]:
    """Return all that the preset's pattern matches, the newest step last."""
    pattern = pattern_of(preset, values)
    known = []
    for name in glob.glob(pattern) if pattern else ():  # noqa: PTH207 - it is an absolute one
        numbers = re.findall("[0-9]+", Path(name).name)
        known.append(Checkpoint(Path(name), numbers[-1] if numbers else ""))
    return sorted(known, key=lambda each: (int(each.step or 0), each.path))


def pattern_of(preset: Preset, values: Mapping[str, object]) -> str | None:
    """Return where checkpoints are, as a glob with an absolute path."""
    if preset.checkpoints is None:
        return None
    pattern = filled(preset.checkpoints, values)
    if Path(pattern).is_absolute():
        return pattern
    worktree = glob.escape(str(Path(str(values["run"])) / code.WORKTREE))
    return os.path.normpath(f"{worktree}/{pattern}")


def folder_of(pattern: str) -> Path:
    """Return the folder above the first part of a pattern that is no plain name."""
    parts = Path(pattern).parts[:-1]
    magic = next((place for place, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return Path(*parts[:magic])


def argument(preset: Preset) -> str | None:
    """Return the argument that names the folder of the checkpoints."""
    names = places(preset.checkpoints or "")
    return next((name for name in names if name in preset.arguments), None)


def _complete(preset: Preset, each: Checkpoint, values: Mapping[str, object], ranks: int) -> bool:
    folder = each.path if each.path.is_dir() else each.path.parent
    known = {**values, "checkpoint": str(each.path), "step": each.step or "*"}
    if each.path.is_file() and not _holds(each.path):
        return False
    for pattern in preset.complete:
        counted = range(ranks) if "{rank}" in pattern else range(1)
        names = [filled(pattern, {**known, "rank": rank}) for rank in counted]
        if not all(_holds(folder / name) for name in names):
            return False
        further = filled(pattern, {**known, "rank": ranks})
        if "{rank}" in pattern and (folder / further).exists():
            return False  # it is of a run with more ranks
    return True


def _holds(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
