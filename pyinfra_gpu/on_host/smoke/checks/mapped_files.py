"""Every library that is mapped into a process, with its digest, and what its wheel recorded.

A pass is bound to what was loaded: the journal keeps these digests as evidence, and a library that
is not the one of its wheel is told before any rank computes with it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_PIECE = 1 << 20


def read(lines: Sequence[str], packages: Path) -> dict[str, dict[str, Any]]:
    """Return path -> size, time of change in ns, digest and recorded digest of each mapped library.

    + lines: of the process's memory map
    + packages: the environment's folder of packages; libraries outside it have no recorded digest
    """
    paths = sorted({Path(each) for each in _paths(lines)})
    recorded = _recorded(packages, {each for each in paths if each.is_relative_to(packages)})
    return {str(path): _described(path, recorded.get(path)) for path in paths if path.is_file()}


def other(files: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the first library whose digest is not the one that its wheel recorded."""
    found = (path for path, each in files.items() if each["recorded"] not in (None, each["sha256"]))
    return next(found, None)


def _paths(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        fields = line.rstrip("\n").split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/") and ".so" in fields[5].rpartition("/")[2]:
            yield fields[5]


def _described(path: Path, recorded: str | None) -> dict[str, Any]:
    digest, found = hashlib.sha256(), path.stat()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return {
        "size": found.st_size,
        "changed_ns": found.st_ctime_ns,
        "sha256": digest.hexdigest(),
        "recorded": recorded,
    }


def _recorded(packages: Path, paths: set[Path]) -> dict[Path, str]:
    """Return the digests that the lists of installed wheels have of these files."""
    wanted = {str(path.relative_to(packages)): path for path in paths}
    found: dict[Path, str] = {}
    for record in packages.glob("*.dist-info/RECORD"):
        for row in record.read_text(errors="replace").splitlines():
            name, _, digest = row.rpartition(",")[0].rpartition(",")
            if name in wanted and digest.startswith("sha256="):
                text = digest.removeprefix("sha256=")
                raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
                found[wanted[name]] = raw.hex()
    return found
