"""What the controller keeps for later runs, and could make again at any time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from pyinfra_gpu.whole_file import replacing

_MOST = 4
"""Results of one kind that stay; the oldest goes first."""


def folder(kind: str) -> Path:
    """Return where things of a kind are kept, below $XDG_CACHE_HOME or ~/.cache."""
    default = Path.home() / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or default) / "pyinfra-gpu" / kind


def kept(kind: str, made_from: Sequence[bytes], make: Callable[[], bytes]) -> bytes:
    """Return what `make` returns; from the cache where it was made from the same before.

    + made_from: all that the result follows from, the code included

    A file that is not whole is made again, and a cache that cannot be written is no fault.
    """
    key = hashlib.sha256(b"".join(_digest(each) for each in made_from)).hexdigest()
    place = folder(kind) / key
    with suppress(OSError, ValueError):
        digest, content = place.read_bytes().split(b"\n", 1)
        if digest == _digest(content).hex().encode():
            return content
    content = make()
    with suppress(OSError):
        _keep(place, content)
    return content


def _keep(place: Path, content: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with replacing(place, 0o644) as file:
        file.write(_digest(content).hex().encode() + b"\n" + content)
    files = sorted(place.parent.iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
    for path in files[_MOST:]:
        path.unlink()


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
