"""Sources, key and history of NVIDIA's packages, from the lines that a host told."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Unknown, without_password
from pyinfra_gpu.facts.openpgp import fingerprints
from pyinfra_gpu.packages import history as apt_log
from pyinfra_gpu.packages import sources as apt_lists
from pyinfra_gpu.packages.model import PackageChange, Source

_NVIDIA = ("nvidia", "cuda/repos")


def read(answer: Answer) -> dict[str, Any]:
    """Return the fields of `NvidiaRecord` that are made of lines of files."""
    key = answer.value(str | None, "nvidia.keyring")
    return {
        "sources": sources(answer),
        "keyring": _fingerprints(key) if isinstance(key, str) else key,
        "history": history(answer.value(tuple[str, ...], "nvidia.changes")),
    }


def _fingerprints(digits: str) -> tuple[str, ...] | Unknown:
    try:
        return fingerprints(bytes.fromhex(digits))
    except ValueError:
        return Unknown("it is not a readable keyring")


def sources(answer: Answer) -> tuple[Source, ...] | Unknown:
    """Return the sources that name NVIDIA's repository or are the declared one.

    In the declared URL, which the probe tells too, `{distro}` and `{arch}` stand for any word.
    """
    listed = all_sources(answer)
    declared = answer.value(str | None, "nvidia.repository")
    if isinstance(listed, Unknown):
        return listed
    if isinstance(declared, Unknown):
        return declared
    return tuple(each for each in listed if _matters(each, declared))


def all_sources(answer: Answer) -> tuple[Source, ...] | Unknown:
    """Return every enabled source; the probe tells each line of the lists as "FILE:LINE"."""
    rows = answer.value(tuple[str, ...], "nvidia.source_lines")
    if isinstance(rows, Unknown):
        return rows
    files: dict[str, list[str]] = {}
    for name, _, line in (row.partition(":") for row in rows):
        files.setdefault(name, []).append(line)
    return tuple(source for name, lines in files.items() for source in apt_lists.read(name, lines))


def _matters(source: Source, declared: str | None) -> bool:
    text = f"{source.file.rpartition('/')[2]} {source.uri}".lower()
    if any(word in text for word in _NVIDIA):
        return True
    if not declared:
        return False
    parts = re.split(r"\{distro\}|\{arch\}", declared.rstrip("/"))
    return re.fullmatch("[^/]+".join(map(re.escape, parts)), source.uri.rstrip("/")) is not None


def history(rows: tuple[str, ...] | Unknown) -> tuple[PackageChange, ...] | Unknown:
    """Return what the package manager's log tells, oldest first, without passwords."""
    if isinstance(rows, Unknown):
        return rows
    return tuple(
        replace(change, command=without_password(change.command)) if change.command else change
        for change in apt_log.read(rows)
    )
