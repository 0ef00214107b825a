"""A host's certificate, as OpenSSH's PROTOCOL.certkeys describes it: read, and held against a name.

Who may have signed it is for `known_hosts` to say; whether the signature is right, for the one who
can compute that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HOST = 2  # of two types; 1 is a user's
_FIELDS = {"ssh-ed25519": 1, "ssh-rsa": 2, "ecdsa-sha2": 2}  # of the public key itself
ENDING = "-cert-v01@openssh.com"


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a certificate says.

    + principals: names of the host, whole ones; valid_from, valid_until: seconds since 1970
    + authority: the kind of the key that signed, and its bytes; signed: what it has signed
    """

    of_host: bool
    principals: tuple[str, ...]
    valid_from: int
    valid_until: int
    critical: bytes
    authority: tuple[str, bytes]
    signed: bytes
    signature: bytes

    def fault(self, name: str, now: float) -> str | None:
        """Say why it does not hold for a host's name, as `ssh` knows it without a port."""
        if not self.of_host:
            return "it is one for users"
        if self.critical:
            return "it has conditions that nobody here knows"
        if not self.valid_from <= now < self.valid_until:
            return "it is not valid now"
        if name not in self.principals:
            return f"it is for {', '.join(self.principals)[:200] or 'no host by name'}"
        return None


def read(blob: bytes) -> Certificate | None:
    """Return what a certificate says; None where it is damaged, or none at all."""
    try:
        return _read(blob)
    except (struct.error, ValueError, KeyError, StopIteration):
        return None


def _read(blob: bytes) -> Certificate:
    parts = _Parts(blob)
    kind = parts.text().decode("ascii")
    if not kind.endswith(ENDING):
        raise ValueError(kind)
    parts.text()  # the nonce
    plain = kind.removesuffix(ENDING)
    for _ in range(_FIELDS["ecdsa-sha2" if plain.startswith("ecdsa-sha2-") else plain]):
        parts.text()
    parts.number(8)  # the serial number
    type_ = parts.number(4)
    parts.text()  # whatever the authority calls it
    principals = tuple(each.decode() for each in _each(parts.text()))
    valid_from, valid_until = parts.number(8), parts.number(8)
    critical, _extensions, _reserved, authority = (parts.text() for _ in range(4))
    signed = blob[: parts.place]
    signature = parts.text()
    if parts.place != len(blob):
        raise ValueError("there is more")
    return Certificate(
        of_host=type_ == _HOST,
        principals=principals,
        valid_from=valid_from,
        valid_until=valid_until,
        critical=critical,
        authority=(next(_each(authority)).decode("ascii"), authority),
        signed=signed,
        signature=signature,
    )


class _Parts:
    """Reads one field of a certificate after the other; struct.error where it ends too early."""

    def __init__(self, blob: bytes) -> None:
        self._blob, self.place = blob, 0

    def number(self, size: int) -> int:
        (value,) = struct.unpack_from(">Q" if size == 8 else ">I", self._blob, self.place)
        self.place += size
        return int(value)

    def text(self) -> bytes:
        length = self.number(4)
        start, self.place = self.place, self.place + length
        if self.place > len(self._blob):
            raise struct.error("cut off")
        return self._blob[start : self.place]


def _each(packed: bytes) -> Iterator[bytes]:
    parts = _Parts(packed)
    while parts.place < len(packed):
        yield parts.text()
