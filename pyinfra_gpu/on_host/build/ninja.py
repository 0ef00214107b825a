"""What ninja says while it works, and what it wrote down of what it has done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STATUS = "[%f/%t] "
"""NINJA_STATUS: steps that are finished, and all of this run."""

_STEP = re.compile(r"^\[(\d{1,7})/(\d{1,7})\] ")


@dataclass(frozen=True)
class Step:
    """One line of progress: so many steps of so many are done in this run."""

    done: int
    total: int


def step(line: str) -> Step | None:
    """Return the progress that a line of ninja's tells; None for any other line."""
    found = _STEP.match(line)
    return Step(int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True)
class Output:
    """A file that a finished command made.

    + ended: when, in seconds since the epoch, by the file's own time
    """

    path: Path
    ended: float


def outputs(build: Path) -> Iterator[Output]:
    """Yield the files that .ninja_log has, each once; a log that was cut has fewer.

    A file that the log does not have is made again by ninja itself.
    """
    log = build / ".ninja_log"
    if not log.exists():
        return
    names: dict[str, None] = {}
    with log.open(encoding="utf-8", errors="replace") as rows:
        for row in rows:
            parts = row.rstrip("\n").split("\t")
            if len(parts) == 5 and parts[3] and "\0" not in row:
                names[parts[3]] = None
    for name in names:
        path = build / name
        try:
            yield Output(path, path.lstat().st_mtime)
        except OSError:
            continue
