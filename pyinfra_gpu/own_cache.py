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

    A cache that cannot be written is no fault.
    """
    digests = b"".join(hashlib.sha256(each).digest() for each in (kind.encode(), *made_from))
    place = folder(kind) / hashlib.sha256(digests).hexdigest()
    with suppress(OSError):
        return place.read_bytes()
    content = make()
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place, 0o644) as file:
            file.write(content)
        files = sorted(place.parent.iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
        for path in files[_MOST:]:
            path.unlink()
    return content
