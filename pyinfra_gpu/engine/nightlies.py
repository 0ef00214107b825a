"""Nightlies: torch's wheel and triton's, kept by the controller from the first use on.

The index forgets them after two or three months, and has none of some days. So the files of a date
are fetched once, kept with their digests, and installed from there on every host, later too; no
other date ever takes their place.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

from gevent.lock import RLock  # type: ignore[import-untyped]  # pyinfra's own event loop
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from pyinfra_gpu.drift.pytorch import STAGE
from pyinfra_gpu.drift.pytorch_lock import platform_of
from pyinfra_gpu.engine.fallback import given_up
from pyinfra_gpu.engine.privilege import as_owner
from pyinfra_gpu.engine.steps import failed
from pyinfra_gpu.engine.wheels import TransferError, digest, send
from pyinfra_gpu.whole_file import replacing

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec
    from pyinfra_gpu.spec.lock import Platform

_FETCHING = RLock()
_DEADLINE_S = 60.0
_BLOCK = 1 << 20
_LARGEST_PAGE = 32 << 20
_SHOWN = 3
_KEPT = "kept.json"
_LINK = re.compile(r"<a\s[^>]*?href=\"([^\"]+)\"", re.IGNORECASE)
_TRITON = re.compile(rb"^Requires-Dist: *((?:pytorch-)?triton) *\(?== *([^;)\s]+)", re.MULTILINE)


class NightlyError(Exception):
    """A nightly cannot be had: one sentence."""


@dataclass(frozen=True)
class File:
    """A wheel of an index, or one that is kept.

    + sha256: as the index says; empty where it says none
    """

    name: str
    url: str
    sha256: str

    @property
    def project(self) -> str:
        """The project's name as the file spells it."""
        return self.name.partition("-")[0]


def folder() -> Path:
    """Return where the controller keeps nightlies; nothing of ours ever removes one.

    Not among its caches, which people empty: what the index forgot cannot be made again.
    """
    default = Path.home() / ".local/state"
    return Path(os.environ.get("XDG_STATE_HOME") or default) / "pyinfra-gpu" / "nightlies"


def folder_of(spec: HostSpec) -> str:
    """Return where a host's own copies are, each in a folder of its own."""
    return f"{spec.paths.build}/nightly"


def brought(state: State, host: Host, spec: HostSpec, record: Record, came: list[str]) -> bool:
    """Have the declared nightly kept, and its files on the host; fail the host otherwise.

    + came: is given the names of the files; empty where a declared fallback takes their place
    """
    wanted, run_as = platform_of(spec, record), as_owner(spec, record)
    name = f"{host.name}: the nightly torch {spec.pytorch.full_version}"
    try:
        if wanted is None:
            raise NightlyError("is for a Python that cannot be told")
        indexes = [url for url in (spec.pytorch.extra_index_url, spec.pytorch.index_url) if url]
        place, files = kept(spec.pytorch.full_version, wanted, indexes, host.log)
        for file in files:
            at = f"{folder_of(spec)}/{file.project}"
            send(state, host, run_as, at, place / file.name, file.sha256, host.log)
        came.extend(file.name for file in files)
    except NightlyError as error:
        return given_up(host, STAGE, spec, f"{name} {error}")
    except (TransferError, OSError) as error:
        return failed(host, STAGE, f"{name} did not come over: {error}; the next run goes on")
    return True


def kept(
    version: str, wanted: Platform, indexes: Sequence[str], told: Callable[[str], object]
) -> tuple[Path, list[File]]:
    """Return the folder of the kept files and what they are, fetched where they are not there.

    + version: with its build, "2.16.0.dev20261120+cu130"
    + indexes: in the order in which they are believed; told: is given a line before files come

    Raises NightlyError, and OSError.
    """
    with _FETCHING:
        return _kept(version, wanted, indexes, told)


def _kept(
    version: str, wanted: Platform, indexes: Sequence[str], told: Callable[[str], object]
) -> tuple[Path, list[File]]:
    place = folder() / f"{version}-cp{wanted.python}-{wanted.machine}"
    known = place / _KEPT
    if known.exists():
        files = _noted(known)
        for file in files:
            if not (place / file.name).exists() or digest(place / file.name) != file.sha256:
                raise NightlyError(
                    f"was kept in {place}, and {file.name} there was changed or removed since:"
                    " restore it from a backup, or remove that folder and the index is asked again"
                )
        return place, files
    told(f"keep torch {version}: the index forgets nightlies ...")
    place.mkdir(parents=True, exist_ok=True)
    files = _fetched(version, wanted, indexes, place)
    text = {"files": [{"name": f.name, "url": f.url, "sha256": f.sha256} for f in files]}
    with replacing(known, 0o644) as target:
        target.write((json.dumps(text, indent=1) + "\n").encode())
    return place, files


def _noted(known: Path) -> list[File]:
    """Return which files are kept, as was noted when they were fetched."""
    try:
        return [File(**each) for each in json.loads(known.read_text(encoding="utf-8"))["files"]]
    except (ValueError, TypeError, KeyError) as error:
        raise NightlyError(
            f"was kept, and {known} cannot be read ({error}): restore it from a backup, or remove"
            " its folder and the index is asked again"
        ) from error


def _fetched(version: str, wanted: Platform, indexes: Sequence[str], place: Path) -> list[File]:
    """Fetch torch's wheel, and the triton that it asks for by its very version."""
    torch = _download(_found(indexes, "torch", version, wanted), place)
    asked = _TRITON.search(metadata(place / torch.name))
    if asked is None:
        return [torch]
    name, version = (each.decode("ascii") for each in asked.groups())
    return [torch, _download(_found(indexes, name, version, wanted), place)]


def _found(indexes: Sequence[str], project: str, version: str, wanted: Platform) -> File:
    """Return the wheel of one version for a platform.

    Raises NightlyError, which names the nearest versions there are.
    """
    there: dict[Version, File] = {}
    for index in indexes:
        there = {**_wheels(index, project, wanted), **there}
    exact = there.get(Version(version))
    if exact is not None:
        return exact
    kin = [each for each in there if each.is_devrelease is Version(version).is_devrelease]
    where, platform = " and ".join(indexes), f"Python {wanted.python} on {wanted.machine}"
    near = sorted(kin, key=lambda each: abs(_day(each) - _day(Version(version))))[:_SHOWN]
    named = ", ".join(str(each) for each in sorted(near)) or "no version at all"
    raise NightlyError(
        f"cannot be had: {where} has no {project} {version} for {platform} (nightlies leave it"
        f" after 60 to 90 days, and some days have none); it has {named}: set pytorch_version to"
        " one of those"
    )


def _day(version: Version) -> int:
    """Return the date in a nightly's version as a number, 0 for others."""
    return version.dev or 0


def _wheels(index: str, project: str, wanted: Platform) -> dict[Version, File]:
    """Return the wheels of a project that fit a platform, by version."""
    url = f"{index.rstrip('/')}/{project}/"
    found: dict[Version, File] = {}
    for link in _LINK.findall(_page(url)):
        target = urljoin(url, unescape(link))
        name = unquote(urlsplit(target).path.rpartition("/")[2])
        try:
            named, version, _, tags = parse_wheel_filename(name)
        except InvalidWheelFilename:
            continue
        if named != canonicalize_name(project) or "/" in name:
            continue
        if any(_fits(tag.interpreter, tag.abi, tag.platform, wanted) for tag in tags):
            stated = re.search(r"sha256=([0-9a-f]{64})", urlsplit(target).fragment)
            plain = target.partition("#")[0]
            found[version] = File(name=name, url=plain, sha256=stated[1] if stated else "")
    return found


def _fits(interpreter: str, abi: str, platform: str, wanted: Platform) -> bool:
    own = f"cp{wanted.python.replace('.', '')}"
    python = (interpreter == own and abi in (own, "abi3", "none")) or interpreter == "py3"
    return python and (platform == "any" or platform.endswith(f"_{wanted.machine}"))


def _page(url: str) -> str:
    """Return a page of an index; empty where the index has no such project."""
    try:
        with urllib.request.urlopen(url, timeout=_DEADLINE_S) as answer:  # noqa: S310 - data says which
            return str(answer.read(_LARGEST_PAGE).decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        if error.code in (403, 404):
            return ""
        raise NightlyError(f"cannot be had: {url} answers {error.code} {error.reason}") from error
    except OSError as error:
        raise NightlyError(f"cannot be had: {url} cannot be read: {error}") from error


def _download(file: File, place: Path) -> File:
    """Fetch a wheel into the folder; return it with the digest that it has."""
    target, made = place / file.name, hashlib.sha256()
    try:
        with (
            replacing(target, 0o644) as output,
            urllib.request.urlopen(file.url, timeout=_DEADLINE_S) as answer,  # noqa: S310
        ):
            while block := answer.read(_BLOCK):
                made.update(block)
                output.write(block)
            found = made.hexdigest()
            if file.sha256 and found != file.sha256:
                raise NightlyError(
                    f"cannot be kept: {file.name} has the digest {found}, and the index says"
                    f" {file.sha256}: find out who changed it (a mirror, a proxy)"
                )
    except OSError as error:
        raise NightlyError(f"cannot be kept: {file.name} cannot be fetched: {error}") from error
    return File(name=file.name, url=file.url, sha256=found)


def metadata(wheel: Path) -> bytes:
    """Return what a wheel says of itself. Raises NightlyError where it is none."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
            return archive.read(names[0]) if names else b""
    except zipfile.BadZipFile as error:
        raise NightlyError(f"cannot be kept: {wheel.name} is no wheel ({error})") from error
