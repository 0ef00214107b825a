"""The lab's wheel index: real wheels, downloaded once on this machine, served to the hosts.

Laid out as a simple index (PEP 503) with digests, and with each wheel's metadata beside it
(PEP 658), so that an installer resolves without downloading the big ones.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu_rehearsal.commands import Say, cached, remove_tree, run

REQUIREMENTS = ("torch==2.13.0+cpu", "uv==0.13.8", "numpy", "setuptools")
# What builds torch from source, for hosts that are to build the stand-in.
BUILD_REQUIREMENTS = (*catalogue().build_tools, "setuptools", "wheel", "scikit-build-core")
INDEX = "simple"  # of the wheels in a folder, below it
# PyTorch's own index of CPU builds, asked only where the configured indexes do not have them.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def lay_out_index(folder: Path, index: Path) -> None:
    """Lay out the wheels in FOLDER as a simple index in the folder INDEX, by links."""
    remove_tree(index)
    index.mkdir(parents=True)
    pages: dict[Path, list[str]] = {index: []}
    for wheel in sorted(folder.glob("*.whl")):
        name = re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower()  # as an index spells it
        project = index / name
        if project not in pages:
            project.mkdir()
            pages[index].append(f'<a href="{name}/">{name}</a><br>')
        with zipfile.ZipFile(wheel) as archive:
            (entry,) = (n for n in archive.namelist() if re.match(r"[^/]+\.dist-info/METADATA$", n))
            metadata = archive.read(entry)
        with wheel.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        noted = f"sha256={hashlib.sha256(metadata).hexdigest()}"
        (project / wheel.name).symlink_to(os.path.relpath(wheel, project))
        (project / f"{wheel.name}.metadata").write_bytes(metadata)
        # "+" of a local version must be quoted: servers may take it for a blank.
        pages.setdefault(project, []).append(
            f'<a href="{wheel.name.replace("+", "%2B")}#sha256={digest}"'
            f' data-core-metadata="{noted}" data-dist-info-metadata="{noted}">{wheel.name}</a><br>'
        )
    for page, links in pages.items():
        (page / "index.html").write_text("<!DOCTYPE html>\n" + "\n".join(links) + "\n")


def download(wanted: Iterable[str], folder: Path, *options: str, python: str = "3.11") -> None:
    """Download wheels into FOLDER.

    + wanted: requirements; options: further ones of `pip download`
    + python: version of the Python that they are for

    Raises LabError where that fails.
    """
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    words += ["--no-input", "--dest", str(folder), *options]
    words += ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    words += [f"--abi={abi}" for abi in (f"cp{python.replace('.', '')}", "abi3", "none")]
    # pip does not go down from a newer glibc to an older one by itself.
    tags = [f"manylinux_2_{minor}" for minor in range(28, 11, -1)]
    for tag in (*tags, "manylinux2014", "manylinux2010"):
        words.append(f"--platform={tag}_{platform.machine()}")
    if run([*words, *wanted], purpose="", timeout=1800, check=False).returncode != 0:
        words += ["--extra-index-url", CPU_INDEX]
        run([*words, *wanted], purpose="downloading wheels", timeout=1800)


def ensure_wheels(python: str, say: Say, wanted: tuple[str, ...] = REQUIREMENTS) -> Path:
    """Return a folder of wheels for PYTHON ("3.11"), and in it their INDEX, to be served as it is.

    + wanted: the requirements; what they need comes with them

    They are downloaded first where the cache does not have them. Raises LabError where that
    fails.
    """

    def build(folder: Path) -> None:
        download(wanted, folder, python=python)
        lay_out_index(folder, folder / INDEX)

    doing = f"downloading wheels for Python {python}: {', '.join(wanted)}"
    return cached(f"wheels-{python}", [python, platform.machine(), *wanted], build, say, doing)
