"""Files that are whole or not there, and on disk when that is said."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replace `path`, so that no reader and no power cut shows half of it. Raises OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(json.dumps(document, indent=1, sort_keys=True) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def read_json(path: Path) -> dict[str, Any]:
    """Return a document; empty where there is none, or none that is whole."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def sync(folder: Path) -> None:
    """Have everything on the file system of a folder on disk."""
    subprocess.run(["sync", "-f", str(folder)], check=False)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    made = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            made.update(chunk)
    return made.hexdigest()


def remove(path: Path) -> None:
    """Remove a file or a tree, whatever of it is there. Raises OSError where it cannot."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
