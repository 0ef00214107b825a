"""Small real wheels, an index that serves them, and a project that declares hosts for them."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyinfra_gpu_rehearsal.wheelhouse import lay_out_index


def wheel(
    folder: Path, name: str, version: str, *, requires: str = "", tag: str = "py3-none-any",
    text: str = "",
) -> Path:  # fmt: skip
    """Make a wheel with one module of that name; `text` makes it another file of one version."""
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}/__init__.py": f"text = {text!r}\n",
        f"{name}/version.py": f"__version__ = '{version}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    if name == "uv":
        files[f"uv-{version}.data/scripts/uv"] = f"#!/bin/sh\necho 'uv {version} ({text})'\n"
    rows = [f"{path},{_digest(content)},{len(content)}" for path, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, content in files.items():
            entry = zipfile.ZipInfo(inside)
            entry.external_attr = 0o100755 << 16  # what is no script may be executable too
            archive.writestr(entry, content)
    return path


def _digest(content: str) -> str:
    raw = hashlib.sha256(content.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def sha256(path: Path) -> str:
    """The digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def server(folder: Path) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """Serve a folder; give its URL, and what returns the requests that came by now.

    A process of its own: pyinfra replaces the parts of Python that servers stand on.
    """
    words = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen([*words, "-d", folder], stdout=subprocess.PIPE, stderr=log) as made,
    ):
        assert made.stdout is not None
        match = re.search(rb"port (\d+)", made.stdout.readline())

        def asked() -> list[str]:
            log.seek(0)
            return log.read().splitlines()

        assert match
        try:
            yield f"http://127.0.0.1:{match[1].decode()}/", asked
        finally:
            made.terminate()


def index(wheels: Path, folder: Path) -> Path:
    """Lay out a folder's wheels as an index, as it is now."""
    lay_out_index(wheels, folder)
    return folder
