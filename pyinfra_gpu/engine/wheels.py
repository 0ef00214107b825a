"""Wheels on their way from the host that built them to others, by way of the controller's cache."""

from __future__ import annotations

import base64
import binascii
import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gevent.lock import RLock  # type: ignore[import-untyped]  # pyinfra's own event loop

from pyinfra_gpu import own_cache
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import Answer, ask
from pyinfra_gpu.engine.steps import quoted
from pyinfra_gpu.facts.pytorch_build import Manifest
from pyinfra_gpu.on_host import program
from pyinfra_gpu.text import shortened
from pyinfra_gpu.whole_file import replacing

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

_FETCHING = RLock()
_PIECE = 8 << 20  # bytes that go over in one command
_MOST = 4
"""Builds of which the cache keeps the wheel; the oldest goes first."""

_MANIFEST = "wheel.json"


class TransferError(Exception):
    """A wheel did not come over: a clause that says why."""


class NotBuiltError(TransferError):
    """There is no wheel to bring: its builder could not make it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cached:
    """A wheel in the cache, whole: its file, and its manifest as text and as a type."""

    path: Path
    text: str
    manifest: Manifest


def folder() -> Path:
    """Return where the controller keeps wheels that hosts built."""
    return own_cache.folder("wheels")


def cached(fingerprint: str) -> Cached | None:
    """Return the wheel of a build; None where the cache has none, or none that is whole."""
    place = folder() / fingerprint
    try:
        text = (place / _MANIFEST).read_text(encoding="utf-8")
        manifest = Manifest.read(text)
        if not isinstance(manifest, Manifest) or manifest.fingerprint != fingerprint:
            return None
        path = place / manifest.file
        whole = path.stat().st_size == manifest.size and digest(path) == manifest.sha256
    except (OSError, ValueError):
        return None
    return Cached(path=path, text=text, manifest=manifest) if whole else None


def fetch(
    state: State, host: Host, run_as: dict[str, Any], build: str, manifest: Manifest
) -> Cached:
    """Bring the wheel that a host built into the cache; a piece that is there is not sent again.

    + build: the build's folder on the host

    Raises TransferError.
    """
    with _FETCHING:  # several hosts may wait for one wheel
        return cached(manifest.fingerprint) or _fetched(state, host, run_as, build, manifest)


def _fetched(
    state: State, host: Host, run_as: dict[str, Any], build: str, manifest: Manifest
) -> Cached:
    place = folder() / manifest.fingerprint
    place.mkdir(parents=True, exist_ok=True)
    part = place / f"{manifest.file}.part"
    with part.open("ab") as file:
        while (have := file.tell()) < manifest.size:
            words = (f"{build}/wheels/{manifest.file}", str(have), str(_PIECE))
            answer = _asked(state, host, program("build/send.sh", *words), run_as)
            piece = _decoded("".join(answer.stdout))
            if not piece or have + len(piece) > manifest.size:
                part.unlink()
                raise TransferError(f"{host.name} sent another wheel than it has proven")
            file.write(piece)
            file.flush()
    if digest(part) != manifest.sha256:
        part.unlink()
        raise TransferError(f"the wheel of {host.name} arrived with another digest")
    part.replace(place / manifest.file)
    text = manifest.model_dump_json(indent=1) + "\n"
    with replacing(place / _MANIFEST, 0o644) as target:
        target.write(text.encode())
    _bound()
    return Cached(path=place / manifest.file, text=text, manifest=manifest)


def send(
    state: State,
    host: Host,
    run_as: dict[str, Any],
    folder: str,
    wheel: Path,
    sha256: str,
    told: Callable[[str], object],
) -> None:
    """Bring a wheel of the controller's to a folder of a host, as far as it is not there yet.

    + run_as: the owner's; told: is given a line now and then

    Other wheels in that folder go. Nothing says yet what the wheel is. Raises TransferError.
    """
    target, size = f"{folder}/{wheel.name}", wheel.stat().st_size
    length = ["stat", "-c", "length %s", "--", f"{target}.part"]
    known = ask(state, host, quoted(*length), run_as, seconds=deadlines.PLAIN)
    have = min(_length(known) or 0, size)
    with wheel.open("rb") as file:
        while have < size:
            file.seek(have)
            piece = file.read(_PIECE)
            command = program("build/receive.sh", target, str(have))
            text = base64.encodebytes(piece).decode("ascii")
            answer = _asked(state, host, command, run_as, _stdin=text)
            if _length(answer) != have + len(piece):
                raise TransferError("a piece of the wheel did not arrive whole")
            have += len(piece)
            if size > _PIECE:
                told(f"wheel: {have >> 20} of {size >> 20} MiB sent")
    _asked(state, host, program("build/accept.sh", target, sha256), run_as)


def _asked(state: State, host: Host, command: str, run_as: dict[str, Any], **more: Any) -> Answer:
    answer = ask(state, host, command, run_as, seconds=deadlines.SERVICE, **more)
    if not answer.ok:
        last = answer.lines[-1] if answer.lines else "the command said nothing"
        raise TransferError(shortened(last, 300))
    return answer


def _length(answer: Answer) -> int | None:
    """Return the length that the host tells of its part."""
    for line in answer.stdout:
        word, _, number = line.partition(" ")
        if word == "length" and number.isascii() and number.isdigit() and len(number) < 16:
            return int(number)
    return None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise TransferError(f"what was sent is no wheel ({error})") from error


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _bound() -> None:
    """Keep the newest wheels."""
    places = [each for each in folder().iterdir() if each.is_dir()]
    for each in sorted(places, key=lambda place: place.stat().st_mtime)[:-_MOST]:
        shutil.rmtree(each, ignore_errors=True)
