"""Wheels on their way from the host that built them to others, by way of the controller's cache.

They go through a channel to a program that works as the owner: whoever logs in, root too, opens
nothing that the owner can write.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

from gevent.lock import RLock  # type: ignore[import-untyped]  # pyinfra's own event loop
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu import own_cache
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import Program, start
from pyinfra_gpu.engine.deadlines import within
from pyinfra_gpu.engine.steps import quoted
from pyinfra_gpu.facts.pytorch_build import Manifest
from pyinfra_gpu.on_host import program
from pyinfra_gpu.text import shortened
from pyinfra_gpu.whole_file import replacing

_FETCHING = RLock()
_MOST = 4  # builds of which the cache keeps the wheel; the oldest goes first
_MANIFEST = "wheel.json"
_CHUNK = 1 << 18
_WORDS = 1 << 16  # bytes that a host may say of a wheel that it was sent


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
        read = quoted("head", "-c", str(manifest.size + 1), f"{build}/wheels/{manifest.file}")
        found_digest = hashlib.sha256()
        with replacing(place / manifest.file, 0o644) as file:
            with within(deadlines.INSTALL, "the wheel did not come"):
                reading = _begun(state, host, run_as, read, most=manifest.size + 1, as_one=False)
                while chunk := reading.read():
                    found_digest.update(chunk)
                    file.write(chunk)
                ended = reading.ended()
                reading.close()
            if ended != 0:
                raise TransferError(f"its wheel cannot be read on {host.name}")
            if found_digest.hexdigest() != manifest.sha256:
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
    accept = program("build/accept.sh", folder, wheel.name, sha256)
    with within(deadlines.INSTALL, "the wheel did not go over"), wheel.open("rb") as file:
        accepting = _begun(state, host, run_as, accept, most=_WORDS)
        while (chunk := file.read(_CHUNK)) and accepting.say(chunk):
            pass
        accepting.end_input()
        said = ["the command said nothing", *filter(None, accepting.lines())]
        if accepting.ended() != 0:
            raise TransferError(shortened(said[-1], 300))


def _begun(state: State, host: Host, run_as: dict[str, Any], text: str, **bound: Any) -> Program:
    begun = start(state, host, text, run_as, seconds=deadlines.PLAIN, **bound)
    if begun is None:
        raise TransferError("nothing can be sent through a connection of that kind")
    return begun


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
