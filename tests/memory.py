"""The tests' files in memory.

A host made of files is 50 of them. To make one and to take it away takes a file system on a disk
27 ms of a processor, and much longer until it is done; memory takes 7. An installed torch costs
twice as much on a disk: ext4 without a journal goes by every file that was removed in the last
minutes for each one it makes, and to make and remove them is what hosts do.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

_NEW_MOUNTS = 0x20000  # CLONE_NEWNS of unshare(2)
_PRIVATE = 0x44000  # MS_REC and MS_PRIVATE of mount(2)
_DETACH = 2  # MNT_DETACH of umount2(2)
_LIBC = ctypes.CDLL(None)
_own: list[bool] = []


def own_mounts() -> bool:
    """Have what this process mounts be seen by it and its children alone, and end with them.

    Returns whether that may be done: it takes root, and not every container lets root.
    """
    if not _own and _LIBC.unshare(_NEW_MOUNTS) == 0:
        _own.append(_LIBC.mount(b"none", b"/", None, _PRIVATE, None) == 0)
    return has_own_mounts()


def has_own_mounts() -> bool:
    """Tell whether that was done."""
    return any(_own)


def available_gib(said: Path = Path("/proc/meminfo")) -> float:
    """Return how much memory is free, or may be freed, by what the kernel says; else 0."""
    try:
        known = dict(line.split(":") for line in said.read_text().splitlines())
        return int(known["MemAvailable"].split()[0]) / (1 << 20)
    except (OSError, KeyError):
        return 0.0


def mount(place: Path, mode: int, gib: int) -> bool:
    """Put memory in the place of what a folder holds; return whether that may be done.

    + mode: the folder's
    + gib: how large it says that it is; what is not used of it is not taken
    """
    options = f"mode={mode:04o},size={gib}g".encode()
    return _LIBC.mount(b"tmpfs", bytes(place), b"tmpfs", 0, options) == 0


def unmount(place: Path) -> None:
    """Take memory away again, with all that it holds."""
    _LIBC.umount2(bytes(place), _DETACH)
