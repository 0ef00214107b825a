"""Fingerprints of the keys in an OpenPGP keyring, from its bytes: RFC 4880 and RFC 9580."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from pyinfra_gpu.facts.fields import Unknown

_PUBLIC_KEY = 6  # packet tag of a primary key; subkeys have 14


def fingerprints(keyring: bytes) -> tuple[str, ...] | Unknown:
    """Return the fingerprints of the primary keys, as 40 upper-case hexadecimal digits.

    + keyring: the file's bytes; apt takes no ASCII armor in a file of that name either

    Unknown where it cannot be read to its end, or holds a key of another version than 4: an
    incomplete list would hide a key that is trusted.
    """
    try:
        return tuple(_fingerprint(body) for tag, body in _packets(keyring) if tag == _PUBLIC_KEY)
    except (ValueError, IndexError) as error:
        return Unknown(f"it is not a readable keyring: {error}")


def _fingerprint(body: bytes) -> str:
    if body[0] != 4:
        raise ValueError(f"it holds a key of version {body[0]}")
    framed = b"\x99" + len(body).to_bytes(2, "big") + body
    # SHA-1 is what the format defines a version 4 fingerprint by.
    return hashlib.sha1(framed, usedforsecurity=False).hexdigest().upper()


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and bodies of the packets, in order."""
    place = 0
    while place < len(data):
        first = data[place]
        if not first & 0x80:
            raise ValueError(f"byte {place} begins no packet")
        new = bool(first & 0x40)
        tag = first & 0x3F if new else (first & 0x3F) >> 2
        size, width = _size(data[place + 1 : place + 6], None if new else first & 3)
        start = place + 1 + width
        place = start + size
        if place > len(data):
            raise ValueError("its last packet is cut off")
        yield tag, data[start:place]


def _size(data: bytes, kind: int | None) -> tuple[int, int]:
    """Length of a packet's body, and of the length itself; `kind` is the old format's, or None."""
    if kind == 3:
        raise ValueError("a packet names no length")
    if kind is not None:
        return int.from_bytes(data[: 1 << kind], "big"), 1 << kind
    if data[0] < 192:
        return data[0], 1
    if data[0] < 224:
        return ((data[0] - 192) << 8) + data[1] + 192, 2
    if data[0] == 255:
        return int.from_bytes(data[1:5], "big"), 5
    raise ValueError("a packet comes in parts")
