"""From a host's lines to the whole record: a pure function."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_type_hints

from pyinfra_gpu.facts import nvidia
from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Hidden, Unknown
from pyinfra_gpu.facts.pytorch_build import BuildState, Manifest
from pyinfra_gpu.facts.record import Entry, Record
from pyinfra_gpu.facts.verdict import Stamp, Verdict
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


def _system(answer: Answer) -> dict[str, Any]:
    keys = ("system.preload_problem", "system.owners_problem")
    told = [answer.value(str | Unknown | None, key) for key in keys]
    return {"preload_problem": told[1] if told[0] is None else told[0]}


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
        "distributions": folders if isinstance(folders, Unknown) else _distributions(folders),
        "damaged_others": others if isinstance(others, Unknown) else _first_files(others),
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


def _environment(answer: Answer) -> dict[str, Any]:
    text = answer.text("environment.text")
    return {"text": hidden(text) if isinstance(text, str) else text}


def _launcher(answer: Answer) -> dict[str, Any]:
    runs = answer.value(tuple[str, ...], "launcher.runs")
    if isinstance(runs, Unknown):
        return {"runs": runs}
    return {"runs": tuple(run for run in dict.fromkeys(runs) if _RUN.fullmatch(run))}


def _smoke(answer: Answer) -> dict[str, Any]:
    text = answer.text("smoke.verdict")
    digest = hashlib.sha256(text.encode()).hexdigest() if isinstance(text, str) else text
    stamp = Stamp.read(answer.text("smoke.stamp"))
    return {"stamp": stamp, "verdict": Verdict.read(text), "verdict_sha256": digest}


_MADE: dict[str, Callable[[Answer], dict[str, Any]]] = {
    "system": _system,
    "nvidia": nvidia.read,
    "libcuda": _libcuda,
    "layout": _layout,
    "torch": _torch,
    "build": _build,
    "environment": _environment,
    "launcher": _launcher,
    "smoke": _smoke,
}
"""Part -> what makes those of its fields that are not told as they are."""
