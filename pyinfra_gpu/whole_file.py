"""A file of this machine's, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(target: Path, mode: int) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of `target`, on disk and whole, once all is written.

    + mode: that it gets, e.g. 0o644

    By way of a new file with a name that nobody can guess: the folder may be everybody's. What is
    raised meanwhile leaves what was there. Raises OSError.
    """
    number, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            yield file
            os.fchmod(number, mode)
            file.flush()
            os.fsync(number)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
