"""A disk that is full: what is free there, and what to do."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT)


def above(path: Path) -> Path:
    """Return the nearest folder above a path, or of it, that there is already."""
    return next(each for each in (path, *path.parents) if each.is_dir())


def remedy(error: OSError) -> str:
    """Return how much is free where something could not be written, and what to do; may be empty.

    Inodes or a quota that ran out are told by the kernel as a full disk is.
    """
    if error.errno not in _FULL:
        return ""
    if not error.filename:
        return "; see which file system it is (`df -h; df -i`) and free some there"
    folder = above(Path(str(error.filename)).absolute().parent)
    free = shutil.disk_usage(folder).free >> 20
    return (
        f"; {free} MiB are free below {folder}: delete what nobody needs there, or where much is"
        " free see `df -i` and `quota`"
    )
