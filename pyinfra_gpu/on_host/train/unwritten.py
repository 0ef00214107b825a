"""How a run ended whose disk was full: kept in memory until there is room to write it down."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_LARGEST = 1 << 20
TOLD = "its result cannot be written: the disk is full, or read-only"


def _path(folder: Path) -> Path:
    return Path(f"/run/user/{os.getuid()}/pyinfra-gpu-train/{folder.name}.json")


def keep(folder: Path, attempts: Sequence[dict[str, Any]]) -> None:
    """Keep how the last of a run's attempts ended, until the next boot; never raises.

    + folder: the run's
    """
    path = _path(folder)
    text = json.dumps({"folder": str(folder), "attempts": list(attempts)})
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


def drop(folder: Path) -> None:
    """Forget what was kept: it has been written down."""
    with contextlib.suppress(OSError):
        _path(folder).unlink()


def kept(folder: Path) -> list[dict[str, Any]]:
    """Return the attempts as they ended; none where nothing is kept of this run."""
    try:
        with _path(folder).open("rb") as file:
            told = json.loads(file.read(_LARGEST))
        return list(told["attempts"]) if told["folder"] == str(folder) else []
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
