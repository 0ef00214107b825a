"""One log: lines with their time, rotated, whole even where a program forgets the end of a line."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

from ..rundir import now

LONGEST = 16 << 10  # bytes of a line that are kept; of the rest nothing is
KEPT = 2  # rotated files beside the one that is written
_CUT = b" [cut]"
_LAST = 8 << 10  # bytes that are kept of what the disk did not take: the last lines say why


class Log:
    """A file that is written line by line.

    + largest: bytes after which it is rotated
    + told: is given each line, without its time

    A disk that is full loses lines, but for the last ones, which are written when there is room
    again, with how many were lost before them; it never ends the run.
    """

    def __init__(
        self, path: Path, largest: int, told: Callable[[str], None] = lambda line: None
    ) -> None:
        self.path, self.largest, self.told = path, largest, told
        self.lost = 0
        self._kept: deque[bytes] = deque()  # the last of those lost
        self._torn = False  # the file ends within a line
        self._part = bytearray()
        self._skips = False  # until the end of a line that is too long
        self._descriptor: int | None = None
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        """Take what a program has printed, in pieces as they come."""
        # A progress bar goes back to the line's beginning; empty lines are left out anyway.
        pieces = chunk.replace(b"\r", b"\n").split(b"\n")
        lines = [self._whole(piece) for piece in pieces[:-1]]
        self._begin(pieces[-1])
        self._write([line for line in lines if line is not None])

    def say(self, text: str) -> None:
        """Write a line of our own."""
        self._write([text.encode()])

    def close(self) -> None:
        """Write what has no end yet, and what the disk did not take before; close the file."""
        if self._part:
            self._write([bytes(self._part)])
            self._part.clear()
        if self.lost:
            with contextlib.suppress(OSError):
                self._append(b"")
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _whole(self, end: bytes) -> bytes | None:
        """Return the line that ends here; None for an empty one and for what was cut off."""
        if self._skips:
            self._skips = False
            return None
        self._begin(end)
        if self._skips:
            self._skips = False
            return None  # it was written when it became too long
        line = bytes(self._part)
        self._part.clear()
        return line or None

    def _begin(self, piece: bytes) -> None:
        if self._skips:
            return
        self._part += piece[: LONGEST + 1]
        if len(self._part) > LONGEST:
            self._write([bytes(self._part[:LONGEST]) + _CUT])
            self._part.clear()
            self._skips = True

    def _write(self, lines: list[bytes]) -> None:
        if not lines:
            return
        stamp = now().encode() + b" "
        whole = [stamp + line + b"\n" for line in lines]
        try:
            self._append(b"".join(whole))
        except OSError:
            self.lost += len(lines)
            self._kept.extend(whole)
            while len(self._kept) > 1 and sum(map(len, self._kept)) > _LAST:
                self._kept.popleft()
        for line in lines:
            self.told(line.decode("utf-8", "replace"))

    def _append(self, text: bytes) -> None:
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self.path, flags, 0o600)
            self._size = os.fstat(self._descriptor).st_size
        if self._size + len(text) > self.largest:
            self._rotate()
        if self.lost:
            gone = self.lost - len(self._kept)
            lost = f"[{gone} lines were lost here: the disk was full]\n".encode() if gone else b""
            text = (now().encode() + b" " + lost if lost else b"") + b"".join(self._kept) + text
        text = b"\n" + text if self._torn else text
        written = os.write(self._descriptor, text)
        self._size += written
        self._torn = written < len(text) and (written > 0 or self._torn)
        if written < len(text):
            raise OSError("the disk is full")
        self.lost = 0
        self._kept.clear()

    def _rotate(self) -> None:
        for number in range(KEPT, 0, -1):
            older = self._numbered(number - 1) if number > 1 else self.path
            if older.exists():
                older.replace(self._numbered(number))
        if self._descriptor is not None:
            os.close(self._descriptor)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self.path, flags, 0o600)
        self._size = 0

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")
