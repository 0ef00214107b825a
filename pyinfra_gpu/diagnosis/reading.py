"""A log's bytes, from a file or a pipe, whatever they are, as text of bounded length."""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO

from pyinfra_gpu.on_host.diagnosis.log import left_out

HEAD, TAIL = 1 << 20, 7 << 20  # bytes kept of a longer log: its causes stand at its two ends
LARGEST = 4 << 30  # bytes read at all, unpacked: more is no log but a mistake
_BLOCK = 1 << 20

_GZIP = b"\x1f\x8b"
_GZIP_ONLY = 31  # zlib's code for a gzip header and the largest window
_OTHER_PACKERS = {
    b"\x28\xb5\x2f\xfd": "zstd -dc",
    b"\xfd7zXZ\x00": "xz -dc",
    b"BZh": "bzip2 -dc",
    b"PK\x03\x04": "unzip -p",
}
_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_LOOKED_AT, _MOST_ODD = 4096, 0.3  # characters; the share of them that a text may not exceed


class _DamagedError(Exception):
    """What is packed cannot be unpacked from here on; the message says why."""


class UnreadableError(Exception):
    """The log cannot be read; the message is the end of a sentence."""


@dataclass(frozen=True)
class Log:
    """A log's text, and what has to be said about how it was read (empty if nothing).

    + unread: the part of it that was left out or lost, as it is put into a sentence
    """

    text: str
    note: str
    unread: str = ""


def read_log(stream: BinaryIO) -> Log:
    """Return the log in `stream`: packed with gzip or not, in UTF-8 or UTF-16; of a long one the
    first and the last part.

    Raises UnreadableError if it is packed in another way, damaged at its start or far too long.
    """
    blocks = iter(lambda: stream.read(_BLOCK), b"")
    first = next(blocks, b"")
    for magic, command in _OTHER_PACKERS.items():
        if first.startswith(magic):
            raise UnreadableError(f"is packed; unpack it: {command} FILE | pyinfra-gpu explain")
    blocks = chain([first], blocks)
    return _ends(_unpacked(blocks) if first.startswith(_GZIP) else blocks)


def _unpacked(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what the blocks hold; raise _DamagedError where it cannot be unpacked further."""
    unpacker = zlib.decompressobj(_GZIP_ONLY)
    for block in blocks:
        rest = block
        while rest:
            if unpacker.eof:  # packed files may follow one another
                unpacker = zlib.decompressobj(_GZIP_ONLY)
            try:
                yield unpacker.decompress(rest, _BLOCK)
            except zlib.error as error:
                raise _DamagedError(str(error)) from None
            rest = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
    if not unpacker.eof:
        raise _DamagedError("its end is missing")


def _ends(blocks: Iterable[bytes]) -> Log:
    """Join the first and the last of the blocks, keeping no more of them than is shown."""
    head, tail, length = b"", bytearray(), 0
    notes, unread = [], []
    try:
        for block in blocks:
            length += len(block)
            if length > LARGEST:
                raise UnreadableError(f"is longer than {LARGEST >> 30} GiB; give a part of it")
            room = HEAD - len(head)
            head += block[:room]
            tail += block[room:]
            del tail[: max(0, len(tail) - TAIL)]
    except _DamagedError as error:
        if not head:
            raise UnreadableError(f"is damaged: {error}") from None
        notes.append(f"it is damaged ({error}); only what could be unpacked was read")
        unread.append(f"what follows the first {_size(length)}, which is damaged")
    if length > HEAD + TAIL:
        unread.append(f"the middle {_size(length - HEAD - TAIL)} of its {_size(length)}")
        notes.append(f"it has {length >> 20} MiB, of which the middle was left out")
    text = _decoded(head, bytes(tail), length)
    if _is_binary(text[:_LOOKED_AT]):
        raise UnreadableError("is not a text: give the log, or the output of the program")
    if lines := left_out(text):
        unread.append(lines)
        notes.append(f"it is long: {lines} were left out")
    return Log(text, "; ".join(notes), " and ".join(unread))


def _size(length: int) -> str:
    """Say a number of bytes as people do."""
    return f"{length / (1 << 20):.0f} MiB" if length >= 1 << 20 else f"{length} bytes"


def _is_binary(text: str) -> bool:
    """Tell whether so much of a text cannot be printed that it is none; escapes and NULs occur."""
    odd = sum(
        letter == "\ufffd" or (letter < " " and letter not in "\t\n\r\x1b") for letter in text
    )
    return odd > _MOST_ODD * len(text)


def _decoded(head: bytes, tail: bytes, length: int) -> str:
    encoding = next((name for bom, name in _UTF_16.items() if head.startswith(bom)), "utf-8")
    if length <= HEAD + TAIL:
        return (head + tail).decode(encoding, "replace")
    if encoding != "utf-8":
        head = head[: len(head) // 2 * 2]
        tail = tail[(length - len(tail)) % 2 :]  # a character has two bytes: begin with a whole one
    # A character of several bytes may have been cut where the middle was left out.
    return f"{head.decode(encoding, 'ignore')}\n{tail.decode(encoding, 'ignore')}"
