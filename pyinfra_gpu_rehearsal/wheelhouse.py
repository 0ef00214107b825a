"""The lab's wheel index: real wheels, downloaded once on this machine, served to the hosts.

Laid out as a simple index (PEP 503) with digests, and with each wheel's metadata beside it
(PEP 658), so that an installer resolves without downloading the big ones.
"""

from __future__ import annotations

import hashlib
import html
import importlib.util
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu_rehearsal.base_image import Say
from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.state import cache_folder, locked, write_atomically

UV = "uv==0.13.8"
REQUIREMENTS = ("torch==2.13.0+cpu", UV, "numpy", "setuptools")
# What builds torch from source, for hosts that are to build the stand-in.
BUILD_REQUIREMENTS = (*catalogue().build_tools, "setuptools", "wheel", "scikit-build-core")
# PyTorch's own index of CPU builds, asked only where the configured indexes do not have them.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def normalised(name: str) -> str:
    """Return a distribution's name as an index spells it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """One wheel of the index."""

    filename: str
    sha256: str
    metadata_sha256: str
    requires_python: str

    @property
    def project(self) -> str:
        """The project's normalised name."""
        return normalised(self.filename.split("-")[0])


def read_metadata(wheel: Path) -> bytes:
    """Return the METADATA file of WHEEL."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if re.match(r"^[^/]+\.dist-info/METADATA$", n))
        return archive.read(name)


def describe(wheel: Path) -> Wheel:
    """Return what the index says about the file WHEEL."""
    metadata = read_metadata(wheel)
    requires = re.search(rb"^Requires-Python: *(.+?)\r?$", metadata, re.MULTILINE)
    with wheel.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return Wheel(
        filename=wheel.name,
        sha256=digest,
        metadata_sha256=hashlib.sha256(metadata).hexdigest(),
        requires_python=requires[1].decode() if requires else "",
    )


def root_page(projects: Iterable[str]) -> str:
    """Return the index's first page: a link for each project."""
    links = "\n".join(f'<a href="{name}/">{name}</a><br>' for name in sorted(projects))
    return f"<!DOCTYPE html>\n<html><body>\n{links}\n</body></html>\n"


def project_page(wheels: Iterable[Wheel]) -> str:
    """Return a project's page: a link with digests for each of its wheels."""
    links = []
    for wheel in sorted(wheels, key=lambda wheel: wheel.filename):
        # "+" of a local version must be quoted: servers may take it for a blank.
        href = html.escape(wheel.filename.replace("+", "%2B"))
        requires = html.escape(wheel.requires_python)
        python = f' data-requires-python="{requires}"' if requires else ""
        metadata = f"sha256={wheel.metadata_sha256}"
        links.append(
            f'<a href="{href}#sha256={wheel.sha256}"{python}'
            f' data-core-metadata="{metadata}" data-dist-info-metadata="{metadata}">'
            f"{html.escape(wheel.filename)}</a><br>"
        )
    return "<!DOCTYPE html>\n<html><body>\n" + "\n".join(links) + "\n</body></html>\n"


def pip_command() -> list[str]:
    """Return the words that call pip. Raises LabError where there is none."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip3") or shutil.which("pip")
    if found is None:
        raise LabError("pip is needed to download wheels: run `python3 -m ensurepip`")
    return [found]


def _platform_words(python: str) -> list[str]:
    machine = platform.machine()
    words = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for abi in (f"cp{python.replace('.', '')}", "abi3", "none"):
        words += ["--abi", abi]
    # pip does not go down from a newer glibc to an older one by itself.
    tags = [f"manylinux_2_{minor}" for minor in range(28, 16, -1)]
    for tag in (*tags, "manylinux2014"):
        words += ["--platform", f"{tag}_{machine}"]
    return words


def _download(python: str, folder: Path, wanted: tuple[str, ...]) -> None:
    """Download the wheels for the hosts' python into FOLDER."""
    command = [
        *pip_command(), "download", "--quiet", "--disable-pip-version-check", "--no-input",
        "--dest", str(folder), *_platform_words(python),
    ]  # fmt: skip
    first = run([*command, *wanted], purpose="", timeout=1800, check=False)
    if first.returncode != 0:
        run(
            [*command, "--extra-index-url", CPU_INDEX, *wanted],
            purpose="downloading the hosts' wheels",
            timeout=1800,
        )


def _load(folder: Path) -> list[Wheel]:
    try:
        return [Wheel(**known) for known in json.loads((folder / "wheels.json").read_text())]
    except (OSError, ValueError, TypeError):
        return []


def ensure_wheels(
    python: str, say: Say, wanted: tuple[str, ...] = REQUIREMENTS
) -> tuple[Path, list[Wheel]]:
    """Return the folder with the wheels for PYTHON ("3.11") and what the index says of them.

    + wanted: the requirements; what they need comes with them

    They are downloaded first where the cache does not have them. Raises LabError where that
    fails.
    """
    key = "\0".join([python, platform.machine(), *wanted])
    name = f"wheels-{python}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    folder = cache_folder() / name
    with locked(cache_folder() / f"{name}.lock"):
        wheels = _load(folder)
        if wheels:
            return folder, wheels
        say(f"downloading wheels for Python {python}: {', '.join(wanted)} (once) ...")
        started = time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=folder.parent) as work:
            part = Path(work, "wheels")
            part.mkdir()
            _download(python, part, wanted)
            wheels = [describe(wheel) for wheel in sorted(part.glob("*.whl"))]
            for wheel in wheels:
                metadata = read_metadata(part / wheel.filename)
                (part / f"{wheel.filename}.metadata").write_bytes(metadata)
            known = [{key: getattr(w, key) for key in Wheel.__slots__} for w in wheels]
            (part / "wheels.json").write_text(json.dumps(known, indent=1) + "\n")
            part.rename(folder)
        say(f"{len(wheels)} wheels are ready after {time.monotonic() - started:.0f} s")
        return folder, wheels


def wheels_for(python: str, say: Say, *, needed: bool) -> tuple[Path, list[Wheel]]:
    """Return the wheels for the hosts' Python.

    + needed: whether hosts without them are of no use. Another release has another Python, whose
      wheels this machine's own indexes may lack: its hosts are provisioned up to the packages.
    """
    try:
        return ensure_wheels(python, say)
    except LabError as error:
        if needed:
            raise
        say(f"no wheels for Python {python} ({error}): no torch can be installed on these hosts")
        return cache_folder(), []


def lay_out_index(folder: Path, wheels: Iterable[Wheel], index: Path) -> None:
    """Lay out WHEELS, which lie in FOLDER, as a simple index in the folder INDEX, by links."""
    fresh = index.with_name(f".{index.name}.{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    projects: dict[str, list[Wheel]] = {}
    for wheel in wheels:
        projects.setdefault(wheel.project, []).append(wheel)
    for project, own in projects.items():
        (fresh / project).mkdir(parents=True)
        for wheel in own:
            for name in (wheel.filename, f"{wheel.filename}.metadata"):
                (fresh / project / name).symlink_to(folder / name)
        write_atomically(fresh / project / "index.html", project_page(own))
    write_atomically(fresh / "index.html", root_page(projects))
    shutil.rmtree(index, ignore_errors=True)
    fresh.rename(index)
