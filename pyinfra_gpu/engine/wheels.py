"""Wheels that the controller keeps with their digests, and their way from and to hosts.

Those that hosts built are a cache. Nightlies are not: an index forgets them after two or three
months, and has none of some days, so no other date ever takes the place of one.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from pyinfra_gpu.facts.pytorch_build import Wheel
from pyinfra_gpu.on_host import program
from pyinfra_gpu.spec.lock import Platform
from pyinfra_gpu.text import one_line, shortened

Kept = dict[Path, str]
"""Files of the controller's, with their digests."""

_FETCHING = RLock()  # several hosts may wait for one file
_MOST = 4  # builds of which the cache keeps the wheel; the oldest goes first
_NOTE = "kept.json"
_CHUNK = 1 << 18
_WORDS = 1 << 16  # bytes that a host may say of a wheel that it was sent
_DOWNLOAD_S = 3600.0
_NEWEST_GLIBC = 60
_TRITON = re.compile(r"^Requires-Dist: *((?:pytorch-)?triton) *\(?== *([^;)\s]+)", re.MULTILINE)
_ON_OFFER = re.compile(r"\(from versions: ([^)]*)\)")


class WheelError(Exception):
    """A wheel cannot be had: why, in one clause."""


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _kept(place: Path) -> Kept | None:
    """Return the files of a folder; None where one of them is not as it was kept."""
    try:
        noted = json.loads((place / _NOTE).read_text())
        files = {place / name: str(sha256) for name, sha256 in noted.items()}
        return files if all(digest(path) == files[path] for path in files) else None
    except (OSError, ValueError, AttributeError):
        return None


@contextmanager
def _keeping(place: Path) -> Iterator[Path]:
    """Yield an empty folder, whose files take this place once all of them are there."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part.", dir=place.parent) as made:
        part = Path(made) / "files"
        part.mkdir()
        yield part
        files = {each.name: digest(each) for each in sorted(part.iterdir())}
        (part / _NOTE).write_text(json.dumps(files, indent=1) + "\n")
        os.sync()
        shutil.rmtree(place, ignore_errors=True)
        part.rename(place)


# --- from an index


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


def nightlies() -> Path:
    """Return where the controller keeps nightlies; nothing of ours ever removes one.

    Not among its caches, which people empty: what the index forgot cannot be made again.
    """
    default = Path.home() / ".local/state"
    return Path(os.environ.get("XDG_STATE_HOME") or default) / "pyinfra-gpu" / "nightlies"


def nightly(version: str, platform: Platform, options: Sequence[str]) -> Kept:
    """Return a nightly's wheel and that of its Triton, downloaded the first time.

    + version: with its build, "2.16.0.dev20261120+cu130"
    + options: pip's, for where packages come from

    Raises WheelError, and OSError.
    """
    place = nightlies() / f"{version}-cp{platform.python}-{platform.machine}"
    with _FETCHING:
        if not place.exists():
            with _keeping(place) as part:
                _get(f"torch=={version}", platform, options, part)
                (torch,) = part.iterdir()
                with zipfile.ZipFile(torch) as archive:
                    (name,) = (x for x in archive.namelist() if x.endswith(".dist-info/METADATA"))
                    asked = _TRITON.search(archive.read(name).decode())
                if asked:
                    _get(f"{asked[1]}=={asked[2]}", platform, options, part)
    if (found := _kept(place)) is None:
        raise WheelError(f"was kept in {place}, and is damaged: restore it from a backup, or remove"
                         " that folder, and the index is asked again")  # fmt: skip
    return found


def _get(wanted: str, platform: Platform, options: Sequence[str], folder: Path) -> None:
    try:
        download([wanted], platform, options, folder)
    except WheelError as error:
        why = shortened(one_line(str(error)), 400)
        if offered := _ON_OFFER.search(str(error)):
            newest = ", ".join(offered[1].split(", ")[-3:])
            why = (
                f"no {wanted} for {platform} is there (nightlies leave an index after 60 to 90"
                f" days, and some days have none); the newest are {newest}: set pytorch_version to"
                " one of those"
            )
        raise WheelError(f"cannot be had from {' '.join(options)}: {why}") from error


# --- from and to hosts, through a channel to a program that works as the owner


def folder() -> Path:
    """Return where the controller keeps wheels that hosts built, which it could fetch again."""
    default = Path.home() / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or default) / "pyinfra-gpu" / "wheels"


def cached(fingerprint: str) -> Kept | None:
    """Return the wheel of a build; None where the cache has none that is whole."""
    return _kept(folder() / fingerprint)


def fetch(state: State, host: Host, run_as: dict[str, Any], build: str, wheel: Wheel) -> Kept:
    """Bring the wheel that a host built into the cache, where it is not there yet.

    + run_as: the owner's; build: the build's folder on the host

    Raises OSError.
    """
    with _FETCHING:
        if found := cached(wheel.fingerprint):
            return found
        read = quoted("head", "-c", str(wheel.size + 1), f"{build}/wheels/{wheel.file}")
        with _keeping(folder() / wheel.fingerprint) as part:
            path = part / wheel.file
            with within(deadlines.INSTALL, "the wheel did not come"), path.open("wb") as file:
                reading = _begun(state, host, run_as, read, most=wheel.size + 1, as_one=False)
                while chunk := reading.read():
                    file.write(chunk)
                ended = reading.ended()
                reading.close()
            if ended != 0 or digest(path) != wheel.sha256:
                raise OSError(f"the wheel on {host.name} is not the one that was proven there")
        for each in sorted(folder().iterdir(), key=lambda each: each.stat().st_mtime)[:-_MOST]:
            shutil.rmtree(each, ignore_errors=True)
        return {folder() / wheel.fingerprint / wheel.file: wheel.sha256}


def send(
    state: State, host: Host, run_as: dict[str, Any], folder: str, wheel: Path, sha256: str
) -> None:
    """Bring a wheel of the controller's to a folder of a host, in the place of other versions.

    + run_as: the owner's

    Raises OSError.
    """
    accept = program("pytorch/accept.sh", folder, wheel.name, sha256)
    with within(deadlines.INSTALL, "the wheel did not go over"), wheel.open("rb") as file:
        accepting = _begun(state, host, run_as, accept, most=_WORDS)
        while (chunk := file.read(_CHUNK)) and accepting.say(chunk):
            pass
        accepting.end_input()
        said = ["the command said nothing", *filter(None, accepting.lines())]
        if accepting.ended() != 0:
            raise OSError(shortened(said[-1], 300))


def _begun(state: State, host: Host, run_as: dict[str, Any], text: str, **bound: Any) -> Program:
    begun = start(state, host, text, run_as, seconds=deadlines.PLAIN, **bound)
    if begun is None:
        raise OSError("nothing can be sent through a connection of that kind")
    return begun
