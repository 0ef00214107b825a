"""A file of this machine's: written whole or not at all, and read only where it is one."""

from __future__ import annotations

import errno
import os
import stat
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


def read(path: Path) -> bytes:
    """Return what is in a file, without waiting for anybody.

    To open a named pipe waits until somebody writes, and no signal ends that. Raises OSError,
    also for whatever else is no regular file, but for /dev/null.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not _is_plain(os.fstat(file.fileno())):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read()


def _is_plain(about: os.stat_result) -> bool:
    return stat.S_ISREG(about.st_mode) or os.path.samestat(about, Path(os.devnull).stat())
