"""A log's bytes, from a file or a pipe, as text of bounded length."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, BinaryIO, cast

HEAD, TAIL = 1 << 20, 7 << 20  # bytes kept of a longer log: the cause is near one of its ends
LARGEST = 4 << 30  # bytes read at all, unpacked
_BLOCK = 1 << 20
_GZIP = b"\x1f\x8b"
_LOOKED_AT, _MOST_ODD = 4096, 0.3  # characters; the share of control characters in no text


class UnreadableError(Exception):
    """The log cannot be read; the message is the end of a sentence."""


@dataclass(frozen=True)
class Log:
    """A log's text.

    + unread: which part of it was not read, a sentence; empty if all was
    """

    text: str
    unread: str = ""


def read_log(stream: BinaryIO) -> Log:
    """Return the log in `stream`, packed with gzip or not; of a long one its head and tail.

    Raises UnreadableError if it is in another form, damaged at its start or far too long.
    """
    plain = BufferedReader(cast(Any, stream))
    start = plain.peek(8)[:8]
    blocks = gzip.GzipFile(fileobj=plain) if start.startswith(_GZIP) else plain
    head, tail, length, damage = b"", bytearray(), 0, ""
    try:
        while block := blocks.read1(_BLOCK):
            length += len(block)
            if length > LARGEST:
                raise UnreadableError(f"is longer than {LARGEST >> 30} GiB: give a part of it")
            room = HEAD - len(head)
            head += block[:room]
            tail += block[room:]
            del tail[: max(0, len(tail) - TAIL)]
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        damage = str(error)
        if not head:
            raise UnreadableError(f"is damaged: {damage}") from None
    plain.detach()
    return Log(_decoded(head, bytes(tail), length), _unread(length, damage))


def _decoded(head: bytes, tail: bytes, length: int) -> str:
    if length <= HEAD + TAIL:
        text = (head + tail).decode("utf-8", "replace")
    else:  # a character of several bytes may have been cut in two
        text = f"{head.decode('utf-8', 'ignore')}\n{tail.decode('utf-8', 'ignore')}"
    start = text[:_LOOKED_AT]
    odd = sum(each == "\ufffd" or (each < " " and each not in "\t\n\r\x1b") for each in start)
    if odd > _MOST_ODD * len(start):
        raise UnreadableError(
            "is not a text: unpack it (gzip is read as it is), or give the output of the program"
        )
    return text.removeprefix("\ufeff")


def _unread(length: int, damage: str) -> str:
    parts = []
    if length > HEAD + TAIL:
        middle = (length - HEAD - TAIL) / 2**20
        parts.append(f"of its {length / 2**20:.0f} MiB the middle {middle:.0f} MiB")
    if damage:
        parts.append(f"what follows the first {length} bytes, which is damaged ({damage})")
    return f"Not read: {' and '.join(parts)}." if parts else ""
