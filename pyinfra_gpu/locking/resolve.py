"""From what is declared to a lock: uv resolves, on the controller; we keep what it found.

uv is a program of the controller here (`pip install 'pyinfra-gpu[lock]'`), not the one on hosts:
whoever locks may have no host yet, and what a host runs is itself in the lock.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyinfra_gpu.locking import nightly, tree
from pyinfra_gpu.locking.errors import LockingError
from pyinfra_gpu.locking.needs import Wanted
from pyinfra_gpu.locking.wheel_file import Found, WheelFile
from pyinfra_gpu.spec.lock import INSTALLER, Lock, Locked
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.text import shortened

_DEADLINE_S = 900.0
_LONGEST_REASON = 400  # characters
_UNREACHABLE = ("Failed to fetch", "Request failed", "error sending request", "Could not connect")


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """A lock, and the files it stands for."""

    lock: Lock
    files: tuple[WheelFile, ...]


def resolve(wanted: Wanted, old: Lock | None) -> Resolved:
    """Return the lock for what is wanted. Raises LockingError.

    + old: whose versions are kept where they still fit; None: the newest of everything
    """
    packages, tools = _packages(wanted, old)
    installer = _compiled(wanted, [f"{INSTALLER}=={wanted.uv}"], ())
    lock = Lock(
        torch=wanted.torch,
        platform=wanted.platform,
        installer=next(each for each, _ in installer),
        packages=tuple(sorted(each for each, _ in packages)),
        source=wanted.source.identity,
        tools=tuple(sorted(each for each, _ in tools)),
    )
    files = {file.name: file for _, files in (*packages, *tools, *installer) for file in files}
    return Resolved(lock=lock, files=tuple(files[name] for name in sorted(files)))


def _packages(wanted: Wanted, old: Lock | None) -> tuple[Found, Found]:
    """Return what the environment consists of, and what builds torch where it is built."""
    source, held = wanted.source, old.packages if old else ()
    if source.identity:
        read = tree.read(source)
        tools = _compiled(wanted, [*catalogue().build_tools, *read.build], old.tools if old else ())
        return _compiled(wanted, read.run, held), tools
    if source.nightly:
        own, asked = nightly.kept(wanted)
        return [*own, *_compiled(wanted, asked, held)], []
    return _compiled(wanted, [wanted.requirement], held), []


def _compiled(wanted: Wanted, requirements: Sequence[str], held: Sequence[Locked]) -> Found:
    """Return everything that requirements come to on a platform, with its files.

    + held: whose versions are kept
    """
    if not requirements:
        return []
    platform = wanted.platform
    libc = f"manylinux_{wanted.glibc.replace('.', '_')}" if wanted.glibc else "unknown-linux-gnu"
    command = [
        *(_uv(), "pip", "compile", "--no-config", "--no-header", "--quiet", "--color", "never"),
        "--refresh",  # what the index says now, not what it said ten minutes ago
        *("--format", "pylock.toml", "--only-binary", ":all:", "--no-python-downloads"),
        *("--python-version", platform.python, "--python-platform", f"{platform.machine}-{libc}"),
        *("--python", sys.executable, *wanted.indexes),
    ]
    with tempfile.TemporaryDirectory() as folder:
        if held:
            versions = Path(folder) / "held.txt"
            versions.write_text("".join(f"{each.name}=={each.version}\n" for each in held))
            command += ["--constraint", str(versions)]
        text = _run([*command, "-"], "\n".join(requirements), wanted, held=bool(held))
    found = [_package(each) for each in tomllib.loads(text).get("packages", ())]
    if not found:
        raise LockingError(f"uv found no package for {', '.join(requirements)} with {platform}")
    return found


def _uv() -> str:
    beside = str(Path(sys.executable).parent)
    found = shutil.which("uv", path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise LockingError("uv is needed to resolve: run `pip install 'pyinfra-gpu[lock]'`")
    return found


def _run(command: list[str], text: str, wanted: Wanted, *, held: bool) -> str:
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise LockingError(f"uv did not end within {_DEADLINE_S:.0f} s; try again") from None
    except OSError as error:
        raise LockingError(f"{command[0]} cannot be run: {error}") from None
    if done.returncode == 0:
        return done.stdout
    said = shortened(done.stderr, _LONGEST_REASON)
    if any(each in done.stderr for each in _UNREACHABLE):
        raise LockingError(
            f"an index cannot be read: {said}; check the network, or declare a mirror:"
            " pytorch_index_url"
        )
    other = ", or run it with --upgrade" if held else ""
    asked = text.replace("\n", ", ")
    raise LockingError(
        f"nothing fits {asked} with {wanted.platform}: {said}; declare a pytorch_version,"
        f" pytorch_build or pytorch_python that there are wheels for{other}"
    )


def _package(entry: dict[str, Any]) -> tuple[Locked, tuple[WheelFile, ...]]:
    """Return one package of uv's answer, and its files for the platform."""
    name, version = str(entry.get("name")), str(entry.get("version"))
    files = tuple(_file(each, f"{name} {version}") for each in entry.get("wheels", ()))
    if not files:
        raise LockingError(f"{name} {version} has no wheel: nothing but wheels can be locked")
    digests = tuple(sorted({each.sha256 for each in files}))
    return Locked(name=name, version=version, digests=digests), files


def _file(entry: dict[str, Any], package: str) -> WheelFile:
    url = str(entry["url"]) if "url" in entry else Path(str(entry.get("path"))).absolute().as_uri()
    sha256, size = entry.get("hashes", {}).get("sha256"), entry.get("size")
    if not isinstance(sha256, str):
        raise LockingError(
            f"the index names no SHA-256 of {package}: declare one that does: pytorch_index_url"
        )
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    return WheelFile(name=name, url=url, sha256=sha256, size=size)
