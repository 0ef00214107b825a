"""Room on the disk that is kept for the end: on a full disk a run could not say why it failed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

SIZE = 1 << 20  # bytes: the last lines of all ranks, and the run's document


class Reserve:
    """A file that is there to be removed, when no process of the run is left to fill its place."""

    def __init__(self, path: Path) -> None:
        """Take the room; on a disk that is full already there is none."""
        self._path = path
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(path, flags, 0o600)
            os.posix_fallocate(self._descriptor, 0, SIZE)

    def give(self) -> None:
        """Give the room to what is to be written now; never raises.

        There are file systems on which a removal takes room as well.
        """
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
