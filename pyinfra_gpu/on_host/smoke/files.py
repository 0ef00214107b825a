"""Files that are whole or not there: what the test leaves is read after crashes, too."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Replace `path` by `document`, as `write_text` does."""
    write_text(path, json.dumps(finite(document), indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` so that no reader, and no power cut, ever shows half of it.

    Raises OSError if that is not possible; `path` is then what it was. The temporary file has a
    fixed name, so that one left behind by a killed run is overwritten by the next.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        _write_durably(temporary, text.encode())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        error.filename = error.filename or str(path)  # of a full disk the kernel names no file
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def finite(value: Any) -> Any:
    """Return `value` with numbers that JSON has no word for as strings ("nan", "inf")."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
