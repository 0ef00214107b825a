"""Wheels on their way from the host that built them to others, by way of the controller's cache."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from gevent.lock import RLock  # type: ignore[import-untyped]  # pyinfra's own event loop
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu import own_cache
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.steps import quoted
from pyinfra_gpu.engine.wire import as_user, guard
from pyinfra_gpu.facts.pytorch_build import Manifest
from pyinfra_gpu.on_host import program
from pyinfra_gpu.text import shortened
from pyinfra_gpu.whole_file import replacing

_FETCHING = RLock()
_MOST = 4
"""Builds of which the cache keeps the wheel; the oldest goes first."""

_MANIFEST = "wheel.json"
_STAGED = re.compile(r"/var/tmp/pyinfra-gpu-wheel\.\w+")  # noqa: S108 - a folder of its own
_MAKE_FOLDER = "mktemp -d /var/tmp/pyinfra-gpu-wheel.XXXXXX"
_LOGIN: dict[str, Any] = {"_sudo": False}


class TransferError(Exception):
    """A wheel could not be transferred: a clause that says why."""


def folder() -> Path:
    """Return where the controller keeps wheels that hosts built."""
    return own_cache.folder("wheels")


def cached(fingerprint: str) -> tuple[Path, Manifest] | None:
    """Return the wheel of a build and what it is; None where the cache has none that is whole."""
    place = folder() / fingerprint
    try:
        manifest = Manifest.read((place / _MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(manifest, Manifest) or manifest.fingerprint != fingerprint:
            return None
        path = place / manifest.file
        return (path, manifest) if digest(path) == manifest.sha256 else None
    except (OSError, ValueError):
        return None


def fetch(
    state: State, host: Host, run_as: dict[str, Any], build: str, manifest: Manifest
) -> tuple[Path, Manifest]:
    """Bring the wheel that a host built into the cache, where it is not there yet.

    + run_as: the owner's; build: the build's folder on the host

    Raises TransferError, and OSError.
    """
    with _FETCHING:  # several hosts may wait for one wheel
        if found := cached(manifest.fingerprint):
            return found
        place = folder() / manifest.fingerprint
        place.mkdir(parents=True, exist_ok=True)
        with _staged(state, host) as staged, replacing(place / manifest.file, 0o644) as file:
            read = quoted("head", "-c", str(manifest.size + 1), f"{build}/wheels/{manifest.file}")
            owners = as_user(state, host, read, run_as)
            _done(state, host, StringCommand(owners, ">", quoted(staged)))
            bounded = _Bounded(file, manifest.size)
            _transferred(host, host.get_file, staged, bounded)
            if bounded.digest.hexdigest() != manifest.sha256:
                raise TransferError(f"{host.name} has another wheel there than it has proven")
        with replacing(place / _MANIFEST, 0o644) as target:
            target.write(manifest.model_dump_json(indent=1).encode())
        for each in sorted(folder().iterdir(), key=lambda each: each.stat().st_mtime)[:-_MOST]:
            shutil.rmtree(each, ignore_errors=True)
        return place / manifest.file, manifest


def send(
    state: State, host: Host, run_as: dict[str, Any], folder: str, wheel: Path, sha256: str
) -> None:
    """Bring a wheel of the controller's to a folder of a host; other wheels in that folder go.

    + run_as: the owner's

    Raises TransferError, and OSError.
    """
    with _staged(state, host) as staged:
        _transferred(host, host.put_file, str(wheel), staged)
        accept = program("build/accept.sh", folder, wheel.name, sha256)
        owners = as_user(state, host, accept, run_as)
        _done(state, host, StringCommand("cat", quoted(staged), "|", owners))


@contextmanager
def _staged(state: State, host: Host) -> Iterator[str]:
    """Yield the path of a file in a folder of the login user's own, which is removed again.

    pyinfra's own way beside sudo is a file in /tmp with a name that anybody can guess. Nobody else
    can write here, and between it and what the owner has a pipe leads: whoever logs in, root too,
    opens nothing that the owner can write.
    """
    made = [each for each in _done(state, host, _MAKE_FOLDER) if _STAGED.fullmatch(each)]
    if not made:
        raise TransferError("no folder could be made in /var/tmp there")
    try:
        yield f"{made[-1]}/wheel"
    finally:
        ask(state, host, quoted("rm", "-rf", made[-1]), _LOGIN, seconds=deadlines.PLAIN)


def _transferred(host: Host, transfer: Callable[..., bool], *what: Any) -> None:
    """Have pyinfra transfer a file, and raise whatever it raises as TransferError."""
    guard(host)
    try:
        transfer(*what, _timeout=deadlines.INSTALL)
    except TransferError:
        raise
    except Exception as error:
        raise TransferError(f"the file transfer (SFTP) failed: {error!r}") from error


def _done(state: State, host: Host, command: str | StringCommand) -> tuple[str, ...]:
    """Run a command as whoever logs in; return what it printed."""
    answer = ask(state, host, command, _LOGIN, seconds=deadlines.SERVICE)
    if not answer.ok:
        raise TransferError(shortened(["the command said nothing", *answer.lines][-1], 300))
    return answer.stdout


class _Bounded:
    """A file that takes so many bytes and no more, and knows its digest.

    pyinfra asks for `read` and `seek` before it writes.
    """

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file, self._left, self.digest = file, most, hashlib.sha256()
        self.read, self.seek = file.read, file.seek

    def write(self, data: bytes) -> int:
        """Write, and raise TransferError where it is too much."""
        self._left -= len(data)
        if self._left < 0:
            raise TransferError("it is longer than it was proven")
        self.digest.update(data)
        return self._file.write(data)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
