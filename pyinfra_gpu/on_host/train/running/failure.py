"""Which rank failed first, by what torchrun says and by what it has ranks write down."""

from __future__ import annotations

import json
import re
from pathlib import Path

_ROOT_CAUSE = "Root Cause (first observed failure)"
_RANK = re.compile(r"^\s*rank\s*:\s*(\d{1,6})\b", re.ASCII)
_LARGEST = 256 << 10


class Summary:
    """Reads torchrun's last words line by line."""

    def __init__(self) -> None:
        self.first: int | None = None
        self._near = False

    def read(self, line: str) -> None:
        """Take one line."""
        if _ROOT_CAUSE in line:
            self._near = True
        elif self._near and self.first is None and (match := _RANK.match(line)):
            self.first = int(match[1])


def first_by_files(folder: Path) -> int | None:
    """Return the rank whose error file is the oldest, by the time that stands in it."""
    found = _by_files(folder)
    return min(found)[1] if found else None


def first_time(folder: Path) -> float | None:
    """Return when that rank failed, in seconds since 1970."""
    found = _by_files(folder)
    return min(found)[0] if found else None


def _by_files(folder: Path) -> list[tuple[float, int]]:
    found: list[tuple[float, int]] = []
    for path in folder.glob("torchrun/*/attempt_*/*/error.json"):
        try:
            with path.open("rb") as file:
                message = json.loads(file.read(_LARGEST))["message"]
            found.append((float(message["extraInfo"]["timestamp"]), int(path.parent.name)))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return found
