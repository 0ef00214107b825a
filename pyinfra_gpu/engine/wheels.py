"""Wheels: downloaded for other machines, kept by the controller, and on their way to hosts.

On hosts they go through a channel to a program that works as the owner: whoever logs in, root too,
opens nothing that the owner can write.

An index forgets nightlies after two or three months, and has none of some days. So the files of a
date are downloaded once and kept with their digests. No other date ever takes their place.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gevent import subprocess  # type: ignore[import-untyped]  # pyinfra's own event loop
from gevent.lock import RLock  # type: ignore[import-untyped]
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import Program, start
from pyinfra_gpu.engine.deadlines import within
from pyinfra_gpu.engine.steps import quoted
from pyinfra_gpu.facts.pytorch_build import Manifest
from pyinfra_gpu.on_host import program
from pyinfra_gpu.spec.lock import Platform
from pyinfra_gpu.text import one_line, shortened
from pyinfra_gpu.whole_file import replacing

_FETCHING = RLock()  # several hosts may wait for one file
_MOST = 4  # builds of which the cache keeps the wheel; the oldest goes first
_MANIFEST, _KEPT = "wheel.json", "kept.json"
_CHUNK = 1 << 18
_WORDS = 1 << 16  # bytes that a host may say of a wheel that it was sent
_DOWNLOAD_S = 3600.0
_NEWEST_GLIBC = 60
_TRITON = re.compile(r"^Requires-Dist: *((?:pytorch-)?triton) *\(?== *([^;)\s]+)", re.MULTILINE)
_ON_OFFER = re.compile(r"\(from versions: ([^)]*)\)")
_RESTORE = "restore it from a backup, or remove that folder and the index is asked again"


class WheelError(Exception):
    """A wheel cannot be had: why, in one clause."""


class TransferError(Exception):
    """A wheel could not be transferred: why, in one clause."""


def download(
    wanted: Sequence[str],
    platform: Platform,
    options: Sequence[str],
    folder: Path,
    glibc: int = _NEWEST_GLIBC,
) -> None:
    """Have pip download wheels for a platform, without what they need; it compares digests.

    + wanted: requirements, or the options that name a file of them
    + options: pip's, for where packages come from
    + glibc: the second number of the newest that a wheel may be for

    Raises WheelError.
    """
    words = ["download", "--isolated", "--no-deps", "--no-cache-dir", "--only-binary", ":all:"]
    words += ["--disable-pip-version-check", "--no-input", "--quiet", "--dest", str(folder)]
    words += ["--implementation", "cp", "--python-version", platform.python]
    abis = (f"cp{platform.python.replace('.', '')}", "abi3", "none")
    words += [f"--abi={abi}" for abi in abis]
    tags = [f"manylinux_2_{minor}" for minor in range(glibc, 4, -1)]
    tags += ["manylinux2014", "manylinux2010", "manylinux1", "linux"]
    words += [f"--platform={tag}_{platform.machine}" for tag in tags]
    command = [sys.executable, "-m", "pip", *words, *options, *wanted]
    pipes = {"capture_output": True, "stdin": subprocess.DEVNULL, "text": True}
    try:
        done = subprocess.run(command, timeout=_DOWNLOAD_S, **pipes)
    except subprocess.TimeoutExpired as error:
        raise WheelError(f"pip took more than {_DOWNLOAD_S:g} s") from error
    if done.returncode != 0:
        raise WheelError(done.stderr.partition("ERROR: ")[2] or done.stderr or "it said nothing")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- nightlies


def nightlies() -> Path:
    """Return where the controller keeps nightlies; nothing of ours ever removes one.

    Not among its caches, which people empty: what the index forgot cannot be made again.
    """
    default = Path.home() / ".local/state"
    return Path(os.environ.get("XDG_STATE_HOME") or default) / "pyinfra-gpu" / "nightlies"


def nightly(version: str, platform: Platform, options: Sequence[str]) -> dict[Path, str]:
    """Return a nightly's wheel and that of its Triton, with the digests that they came with.

    + version: with its build, "2.16.0.dev20261120+cu130"
    + options: pip's, for where packages come from

    They are downloaded the first time. Raises WheelError, and OSError.
    """
    place = nightlies() / f"{version}-cp{platform.python}-{platform.machine}"
    with _FETCHING:
        if not place.exists():
            _keep(version, platform, options, place)
    try:
        found = json.loads((place / _KEPT).read_text())
        return {place / name: str(sha256) for name, sha256 in found.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise WheelError(f"was kept, and {place}/{_KEPT} cannot be read: {_RESTORE}") from error


def _keep(version: str, platform: Platform, options: Sequence[str], place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part.", dir=place.parent) as made:
        part = Path(made) / "files"
        part.mkdir()
        requirement = f"torch=={version}"
        try:
            download([requirement], platform, options, part)
            (torch,) = part.iterdir()
            with zipfile.ZipFile(torch) as archive:
                (name,) = (x for x in archive.namelist() if x.endswith(".dist-info/METADATA"))
                asked = _TRITON.search(archive.read(name).decode())
            if asked:
                requirement = f"{asked[1]}=={asked[2]}"
                download([requirement], platform, options, part)
        except WheelError as error:
            why = shortened(one_line(str(error)), 400)
            if offered := _ON_OFFER.search(str(error)):
                newest = ", ".join(offered[1].split(", ")[-3:])
                why = (
                    f"no {requirement} for {platform} is there (nightlies leave an index after 60"
                    f" to 90 days, and some days have none); the newest are {newest}: set"
                    " pytorch_version to one of those"
                )
            raise WheelError(f"cannot be had from {' '.join(options)}: {why}") from error
        files = {each.name: digest(each) for each in sorted(part.iterdir())}
        (part / _KEPT).write_text(json.dumps(files, indent=1) + "\n")
        os.sync()
        part.rename(place)


# --- wheels that hosts built


def folder() -> Path:
    """Return where the controller keeps wheels that hosts built, which it could fetch again."""
    default = Path.home() / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or default) / "pyinfra-gpu" / "wheels"


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
    with _FETCHING:
        if found := cached(manifest.fingerprint):
            return found
        place, most = folder() / manifest.fingerprint, manifest.size + 1
        place.mkdir(parents=True, exist_ok=True)
        read = quoted("head", "-c", str(most), f"{build}/wheels/{manifest.file}")
        with replacing(place / manifest.file, 0o644) as file:
            sha256 = hashlib.sha256()
            with within(deadlines.INSTALL, "the wheel did not come"):
                reading = _begun(state, host, run_as, read, most=most, as_one=False)
                while chunk := reading.read():
                    sha256.update(chunk)
                    file.write(chunk)
                ended = reading.ended()
                reading.close()
            if ended != 0:
                raise TransferError(f"its wheel cannot be read on {host.name}")
            if sha256.hexdigest() != manifest.sha256:
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
