"""Files that are whole or not there: what the test leaves is read after crashes, too."""

from __future__ import annotations

import json
import os
from pathlib import Path


def write(path: Path, document: object) -> None:
    """Replace `path` by `document`, so that no reader, and no power cut, ever shows half of it.

    Raises OSError if that is not possible; `path` is then what it was. The temporary file has a
    fixed name, so that one left behind by a killed run is overwritten by the next.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("w") as file:
            file.write(json.dumps(document, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
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
