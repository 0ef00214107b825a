"""After a power cut: what stands in the build folder may be empty or cut, with its time unchanged.

ninja looks at times alone, and links an object of 0 bytes without a word. So what cannot be whole,
and what may not have reached the disk, is deleted before anything is built.
"""

from __future__ import annotations

import struct
from pathlib import Path

from . import ninja

_OBJECTS = (".o", ".a", ".so", ".lo", ".obj")
_ELF, _ARCHIVES = b"\x7fELF", (b"!<arch>\n", b"!<thin>\n")
_SLACK_S = 2.0
"""A command that ended just before a sync may have written its last bytes just after."""


def prune(build: Path, synced: float) -> int:
    """Delete every output that is not to be believed; return how many there were.

    + synced: until when all that was finished is known to be on disk, since the epoch; 0: unknown
    """
    gone = 0
    for output in ninja.outputs(build):
        if output.path.is_symlink() or not output.path.is_file():
            continue
        if output.ended > synced - _SLACK_S or not whole(output.path):
            output.path.unlink()
            gone += 1
    return gone


def whole(path: Path) -> bool:
    """Tell whether a file can be what a compiler, an archiver or a linker wrote.

    Of other files, such as sources that were generated, none may be empty or full of zeros.
    """
    with path.open("rb") as file:
        head = file.read(64)
        size = file.seek(0, 2)
        if head.startswith(_ELF):
            return _elf_is_whole(head, size)
        if head.startswith(_ARCHIVES):
            return True
        if path.suffix in _OBJECTS or ".so." in path.name:
            return False
        file.seek(max(0, size - 512))
        # An emptied file cannot be told from one that is meant to be empty.
        return bool(head.strip(b"\0")) and bool(file.read(512).strip(b"\0"))


def _elf_is_whole(head: bytes, size: int) -> bool:
    """Tell whether the table of sections, which stands last in an object, is within the file."""
    if len(head) < 64 or head[4] != 2:  # of 64 bits; no other is built here
        return len(head) >= 52
    order = "<" if head[5] == 1 else ">"
    (offset,) = struct.unpack_from(f"{order}Q", head, 40)
    entry, count = struct.unpack_from(f"{order}HH", head, 58)
    return bool(size >= offset + entry * count)
