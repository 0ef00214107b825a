"""Filling a folder with the files that locks name, for hosts without the internet."""

from __future__ import annotations

import hashlib
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from pyinfra_gpu.locking.errors import LockingError
from pyinfra_gpu.locking.wheel_file import WheelFile
from pyinfra_gpu.whole_file import replacing

_DEADLINE_S = 60.0  # for each answer of the server, not for the whole file
_BLOCK = 1 << 20  # bytes
_SCHEMES = ("https", "http", "file")


def download(file: WheelFile, folder: Path) -> bool:
    """Ensure that a wheel is in `folder`; return whether it had to be fetched.

    It has its name only once it is whole, on disk, and has its digest. Raises LockingError.
    """
    target = folder / file.name
    try:
        if target.is_file() and _digest(target) == file.sha256:
            return False
        _fetch(file, target)
    except OSError as error:
        raise LockingError(
            f"{file.name} cannot be fetched into {folder}: {error}; run it again, what is there"
            " is kept"
        ) from None
    return True


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _fetch(file: WheelFile, target: Path) -> None:
    if urlsplit(file.url).scheme not in _SCHEMES:
        raise LockingError(f"{file.name} is at {file.url}, which is no http, https or file URL")
    digest = hashlib.sha256()
    with (
        replacing(target, 0o644) as output,
        urllib.request.urlopen(file.url, timeout=_DEADLINE_S) as answer,  # noqa: S310 - above
    ):
        while block := answer.read(_BLOCK):
            digest.update(block)
            output.write(block)
        if digest.hexdigest() != file.sha256:
            raise LockingError(
                f"{file.name}: what was sent has the digest {digest.hexdigest()}, not"
                f" {file.sha256} as the index says: find out who changed it (a mirror, a proxy)"
            )
