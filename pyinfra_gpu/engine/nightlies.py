"""Nightlies: torch's wheel and triton's, kept by the controller from the first use on.

The index forgets them after two or three months, and has none of some days. So pip downloads the
files of a date once; they are kept with their digests, and installed from there on every host,
later too. No other date ever takes their place.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gevent.lock import RLock  # type: ignore[import-untyped]  # pyinfra's own event loop

from pyinfra_gpu.drift.pytorch import STAGE
from pyinfra_gpu.drift.pytorch_lock import platform_of
from pyinfra_gpu.engine.fallback import given_up
from pyinfra_gpu.engine.pip_download import NEWEST_GLIBC, DownloadError, download
from pyinfra_gpu.engine.privilege import as_owner
from pyinfra_gpu.engine.steps import failed
from pyinfra_gpu.engine.uv import index_options
from pyinfra_gpu.engine.wheels import TransferError, digest, send
from pyinfra_gpu.text import one_line, shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec
    from pyinfra_gpu.spec.lock import Platform

_FETCHING = RLock()
_KEPT = "kept.json"
_TRITON = re.compile(r"^Requires-Dist: *((?:pytorch-)?triton) *\(?== *([^;)\s]+)", re.MULTILINE)
_THERE = re.compile(r"\(from versions: ([^)]*)\)")


class NightlyError(Exception):
    """A nightly cannot be had: one sentence."""


def folder() -> Path:
    """Return where the controller keeps nightlies; nothing of ours ever removes one.

    Not among its caches, which people empty: what the index forgot cannot be made again.
    """
    default = Path.home() / ".local/state"
    return Path(os.environ.get("XDG_STATE_HOME") or default) / "pyinfra-gpu" / "nightlies"


def path_of(spec: HostSpec, name: str) -> str:
    """Return where a host's own copy of a file is, in a folder of its own."""
    return f"{spec.paths.build}/nightly/{name.partition('-')[0]}/{name}"


def brought(state: State, host: Host, spec: HostSpec, record: Record, came: list[str]) -> bool:
    """Have the declared nightly kept, and its files on the host; fail the host otherwise.

    + came: is given the names of the files; empty where a declared fallback takes their place
    """
    wanted, version = platform_of(spec, record), spec.pytorch.full_version
    name = f"{host.name}: the nightly torch {version}"
    try:
        if wanted is None:
            raise NightlyError("is for a Python that cannot be told")
        with _FETCHING:
            place, files = kept(version, wanted, index_options(spec), host.log)
        for file, sha256 in files.items():
            at = os.path.dirname(path_of(spec, file))  # noqa: PTH120 - a path on the host
            send(state, host, as_owner(spec, record), at, place / file, sha256)
        came.extend(files)
    except NightlyError as error:
        return given_up(host, STAGE, spec, f"{name} {error}")
    except (TransferError, OSError) as error:
        return failed(host, STAGE, f"{name} could not be transferred: {error}: run again")
    return True


def kept(
    version: str, wanted: Platform, options: Sequence[str], told: Callable[[str], object]
) -> tuple[Path, dict[str, str]]:
    """Return the folder of the kept files and their digests, fetched where they are not there.

    + version: with its build, "2.16.0.dev20261120+cu130"
    + options: pip's, for where packages come from; told: is given a line before files come

    Raises NightlyError, and OSError.
    """
    place = folder() / f"{version}-cp{wanted.python}-{wanted.machine}"
    if place.exists():
        return place, _compared(place)
    told(f"keep torch {version}: the index forgets nightlies ...")
    folder().mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=".part.", dir=folder()))
    try:
        torch = _downloaded(f"torch=={version}", wanted, options, part)
        with zipfile.ZipFile(torch) as archive:
            (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
            asked = _TRITON.search(archive.read(name).decode())
        if asked:
            _downloaded(f"{asked[1]}=={asked[2]}", wanted, options, part)
        files = {each.name: digest(each) for each in sorted(part.iterdir())}
        (part / _KEPT).write_text(json.dumps(files, indent=1) + "\n")
        os.sync()
        part.rename(place)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return place, files


def _compared(place: Path) -> dict[str, str]:
    """Return which files are kept, where each still has the digest that it came with."""
    restore = "restore it from a backup, or remove that folder and the index is asked again"
    try:
        files = {str(n): str(d) for n, d in json.loads((place / _KEPT).read_text()).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise NightlyError(f"was kept, and {place}/{_KEPT} cannot be read: {restore}") from error
    for name, sha256 in files.items():
        if not (place / name).exists() or digest(place / name) != sha256:
            raise NightlyError(
                f"was kept in {place}, and {name} there was changed or removed since: {restore}"
            )
    return files


def _downloaded(requirement: str, wanted: Platform, options: Sequence[str], place: Path) -> Path:
    """Have pip download one wheel for a host's platform; it compares the index's digest."""
    before = {*place.iterdir()}
    try:
        download([requirement], wanted, options, place, NEWEST_GLIBC)
    except DownloadError as error:
        there = _THERE.search(str(error))
        if there is None:
            raise NightlyError(f"cannot be had: {shortened(one_line(str(error)), 400)}") from error
        name, _, version = requirement.partition("==")
        where = " and ".join(each for each in options if "://" in each)
        newest = ", ".join(there[1].split(", ")[-3:])
        raise NightlyError(
            f"cannot be had: {where} has no {name} {version} for Python {wanted.python} on"
            f" {wanted.machine} (nightlies leave it after 60 to 90 days, and some days have none);"
            f" the newest that it has are {newest}: set pytorch_version to one of those"
        ) from error
    (found,) = {*place.iterdir()} - before
    return found
