"""From a host's lines to the whole record: a pure function."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, get_type_hints

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Hidden, Unknown, without_password
from pyinfra_gpu.facts.openpgp import fingerprints
from pyinfra_gpu.facts.pytorch_build import BuildState, Manifest
from pyinfra_gpu.facts.record import Entry, Record
from pyinfra_gpu.facts.verdict import Stamp, Verdict
from pyinfra_gpu.packages import history as apt_log
from pyinfra_gpu.packages import sources as apt_lists
from pyinfra_gpu.packages.model import PackageChange, Source
from pyinfra_gpu.spec import env_file

_RUN = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)  # PEP 508
_PARTS = get_type_hints(Record)


def parse(lines: Iterable[str]) -> Record:
    """The record that a host's lines tell; never raises, whatever the lines hold."""
    return record_of(Answer(lines))


def record_of(answer: Answer) -> Record:
    """The record, one part after the other."""
    made = {name: make(answer) for name, make in _MADE.items()}
    return Record(
        **{name: answer.part(form, name, **made.get(name, {})) for name, form in _PARTS.items()}
    )


def hidden(text: str) -> Hidden:
    """The content of an environment file, without the values wherever it is shown."""
    return Hidden(text, env_file.shown(text))


def _then(told: Any, make: Callable[[Any], Any]) -> Any:
    """Return what is made of something that a host told; `Unknown` and None stay."""
    return told if told is None or isinstance(told, Unknown) else make(told)


def _system(answer: Answer) -> dict[str, Any]:
    keys = ("system.preload_problem", "system.owners_problem")
    told = [answer.value(str | Unknown | None, key) for key in keys]
    return {"preload_problem": told[1] if told[0] is None else told[0]}


def _nvidia(answer: Answer) -> dict[str, Any]:
    rows = answer.value(tuple[str, ...], "nvidia.source_lines")
    listed = _then(rows, all_sources)
    # In the declared URL, which the probe tells too, {distro} and {arch} stand for any word.
    declared = answer.value(str | None, "nvidia.repository")
    if isinstance(declared, Unknown):
        sources: tuple[Source, ...] | Unknown = declared
    else:
        sources = _then(listed, lambda found: tuple(s for s in found if _matters(s, declared)))
    return {
        "sources": sources,
        "keyring": _then(answer.value(str | None, "nvidia.keyring"), _fingerprints),
        "history": _then(answer.value(tuple[str, ...], "nvidia.changes"), history),
    }


def _fingerprints(digits: str) -> tuple[str, ...] | Unknown:
    try:
        return fingerprints(bytes.fromhex(digits))
    except ValueError:
        return Unknown("it is not a readable keyring")


def all_sources(rows: Iterable[str]) -> tuple[Source, ...]:
    """Return every enabled source, from the lines of apt's lists as "FILE:LINE"."""
    files: dict[str, list[str]] = {}
    for name, _, line in (row.partition(":") for row in rows):
        files.setdefault(name, []).append(line)
    return tuple(source for name, lines in files.items() for source in apt_lists.read(name, lines))


def _matters(source: Source, declared: str | None) -> bool:
    """Tell whether a source is NVIDIA's repository, or the declared one."""
    text = f"{source.file.rpartition('/')[2]} {source.uri}".lower()
    if "nvidia" in text or "cuda/repos" in text:
        return True
    parts = re.split(r"\{distro\}|\{arch\}", (declared or "").rstrip("/"))
    form = "[^/]+".join(map(re.escape, parts))
    return bool(declared) and re.fullmatch(form, source.uri.rstrip("/")) is not None


def history(rows: Iterable[str]) -> tuple[PackageChange, ...]:
    """Return what the package manager's log tells, oldest first, without passwords."""
    return tuple(
        replace(change, command=without_password(change.command)) if change.command else change
        for change in apt_log.read(tuple(rows))
    )


def _libcuda(answer: Answer) -> dict[str, Any]:
    libdir = answer.value(str, "libcuda.libdir")
    if not isinstance(libdir, Unknown):
        return {"libdir": libdir}
    return {"libdir": "", **dict.fromkeys(("cache", "links", "files"), libdir)}


def _layout(answer: Answer) -> dict[str, Any]:
    """What the owner says counts where root said no.

    Root tells in the place of its own which paths are left to the owner.
    """
    form = Mapping[str, Entry | Unknown]
    entries = answer.value(form, "layout.entries")
    left = answer.value(tuple[str, ...], "layout.left")
    if isinstance(entries, Unknown) or isinstance(left, Unknown):
        return {"entries": entries if isinstance(entries, Unknown) else left}
    told = answer.value(form, "owned")
    if isinstance(told, Unknown):
        return {"entries": {**entries, **dict.fromkeys(left, told)}}
    owned = {path: told.get(path, Unknown(f"the owner did not tell of {path}")) for path in left}
    return {"entries": {**entries, **owned}}


def _torch(answer: Answer) -> dict[str, Any]:
    folders = answer.value(tuple[str, ...], "torch.folders")
    others = answer.value(dict[str, str], "torch.others")
    return {
        "distributions": _then(folders, _distributions),
        "damaged_others": _then(others, _first_files),
    }


def _distributions(folders: tuple[str, ...]) -> dict[str, str]:
    """Names and versions, from the names of the folders of metadata.

    A name that begins with "~" is what pip leaves of a package that it could not remove.
    """
    found: dict[str, str] = {}
    for folder in folders:
        name, _, version = folder.removesuffix(".dist-info").rpartition("-")
        if not name or name.startswith("~"):
            continue
        name = _normalised(name)
        found[name] = f"{found[name]} and {version}" if name in found else version
    return found


def _first_files(told: Mapping[str, str]) -> dict[str, str]:
    """Distribution -> file; what is no name of a distribution is passed over."""
    named = {name: path for name, path in told.items() if _DISTRIBUTION.fullmatch(name) and path}
    return {_normalised(name): path for name, path in named.items()}


def _normalised(name: str) -> str:
    """The name as the index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _build(answer: Answer) -> dict[str, Any]:
    wheels = {each: Manifest.read(answer.text(f"build.{each}")) for each in ("stamp", "wheel")}
    return {**wheels, "state": BuildState.read(answer.text("build.state"))}


def _launcher(answer: Answer) -> dict[str, Any]:
    runs = answer.value(tuple[str, ...], "launcher.runs")
    return {"runs": _then(runs, lambda told: tuple(filter(_RUN.fullmatch, dict.fromkeys(told))))}


def _smoke(answer: Answer) -> dict[str, Any]:
    text = answer.text("smoke.verdict")
    return {
        "stamp": Stamp.read(answer.text("smoke.stamp")),
        "verdict": Verdict.read(text),
        "verdict_sha256": _then(text, lambda told: hashlib.sha256(told.encode()).hexdigest()),
    }


_MADE: dict[str, Callable[[Answer], dict[str, Any]]] = {
    "system": _system,
    "nvidia": _nvidia,
    "libcuda": _libcuda,
    "layout": _layout,
    "torch": _torch,
    "build": _build,
    "environment": lambda answer: {"text": _then(answer.text("environment.text"), hidden)},
    "launcher": _launcher,
    "smoke": _smoke,
}
"""Part -> what makes those of its fields that are not told as they are."""
