"""A disk that is full: what is free there, and what to do."""

from __future__ import annotations

import errno
import getpass
import os
import shutil
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT)


def above(path: Path) -> Path:
    """Return the nearest folder above a path, or of it, that there is already."""
    return next(each for each in (path, *path.parents) if each.is_dir())


def unwritable(folder: Path) -> str | None:
    """Return why this user cannot write in a folder, or make it, a clause; None where it can be."""
    there = above(folder)
    if there != folder:
        below = there / folder.relative_to(there).parts[0]
        if os.path.lexists(below):
            return f"{below} is no folder"
    if os.access(there, os.W_OK | os.X_OK):
        return None
    if os.statvfs(there).f_flag & os.ST_RDONLY:
        return f"the file system of {there} is mounted read-only"
    return f"{getpass.getuser()} may not write in {there}"


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
