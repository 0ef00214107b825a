"""From a host's lines to the whole record: one document in JSON, read field by field.

What is not there, or has another type than its field, is `Unknown` in that field alone: no answer,
whatever it is, takes another field or another host with it. The owner's half is a text in root's
document and is taken for the owner's fields only.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, get_type_hints

from pydantic import ValidationError

from pyinfra_gpu.facts import document
from pyinfra_gpu.facts.fields import Hidden, Unknown, without_password
from pyinfra_gpu.facts.openpgp import fingerprints
from pyinfra_gpu.facts.pytorch_build import BuildState, Manifest
from pyinfra_gpu.facts.record import Entry, Record, Str, Whole
from pyinfra_gpu.facts.verdict import Stamp, Verdict
from pyinfra_gpu.on_host.probe.look import FIRST_LINE, LAST_LINE, NVIDIA_KEYS, OWNED, OWNERS_KEYS
from pyinfra_gpu.packages import history as apt_log
from pyinfra_gpu.packages import sources as apt_lists
from pyinfra_gpu.packages.model import PackageChange, Source
from pyinfra_gpu.spec import env_file
from pyinfra_gpu.text import one_line

LONGEST = 2 << 20
"""Bytes that an answer may have; a host with all there is to tell comes to a quarter of that."""
MOST_ROWS = 10_000
"""Rows of one list; a host with every package there is has a fifth of that."""
CUT_OFF = "the probe's output was cut off"
NOT_REPORTED = "the probe did not report it"


class Answer:
    """What a host answered.

    + found: whether the first line was seen; whole: whether the last one was, too
    + python: whether there is a Python that could look
    + refused: why nothing can be read out of it; None where it can
    """

    def __init__(self, lines: Iterable[str]) -> None:
        rows = [line.rstrip("\r\n") for line in lines]
        self.found = FIRST_LINE in rows
        body = rows[rows.index(FIRST_LINE) + 1 :] if self.found else []
        self.whole = LAST_LINE in body
        told = _object("\n".join(body[: body.index(LAST_LINE)])) if self.whole else {}
        self.refused = told.reason if isinstance(told, Unknown) else None
        self._roots = {} if isinstance(told, Unknown) else told
        self.python = self._roots.get("python3", True) is not None
        self.without_nvidia = self._roots.get("nvidia") is False
        owners = self._roots.get("owner", {})
        self._owners = _object(owners) if isinstance(owners, str) else _unknown(owners)

    def raw(self, key: str) -> Any:
        """Return what was told under a key: JSON's own types, or `Unknown`."""
        told = self._owners if key in OWNERS_KEYS else self._roots
        if self.refused or isinstance(told, Unknown):
            return Unknown(self.refused) if self.refused else told
        if key not in told:
            return Unknown(NOT_REPORTED if self.whole else CUT_OFF)
        value = told[key]
        if isinstance(value, list | dict) and len(value) > MOST_ROWS:
            return Unknown(f"the host told of more than {MOST_ROWS}")
        return _unknown(value) if isinstance(value, dict) and set(value) == {"?"} else value

    def value(self, form: Any, key: str) -> Any:
        """Return what was told under a key as that type; `Unknown` where it is something else."""
        raw = self.raw(key)
        if isinstance(raw, Unknown):
            return raw
        try:
            return document.adapter(form).validate_json(json.dumps(raw), strict=True)
        except ValidationError as error:
            return Unknown(document.reason(error))


def parse(lines: Iterable[str]) -> Record:
    """The record that a host's lines tell; never raises, whatever the lines hold."""
    return record_of(Answer(lines))


def record_of(answer: Answer) -> Record:
    """The record, one part after the other."""
    made = {}
    for part, form in _hints(Record).items():
        hints = _hints(form)
        made[part] = form(
            **{
                each.name: _field(answer, f"{part}.{each.name}", hints[each.name])
                for each in fields(form)
                if not (answer.without_nvidia and f"{part}.{each.name}" in NVIDIA_KEYS)
            }
        )
    return Record(**made)


def _field(answer: Answer, key: str, hint: Any) -> Any:
    return _MADE[key](answer, key) if key in _MADE else answer.value(hint, key)


_hints: Callable[[Any], dict[str, Any]] = cache(
    lambda form: get_type_hints(form, include_extras=True)
)


def _object(text: str) -> dict[str, Any] | Unknown:
    try:
        found = document.loads(text, LONGEST)
    except ValueError as error:
        return Unknown(one_line(str(error)))
    return found if isinstance(found, dict) else Unknown("it is no object in JSON")


def _unknown(value: object) -> Unknown:
    reason = value.get("?") if isinstance(value, Mapping) else None
    return Unknown(one_line(str(reason)) if reason else NOT_REPORTED)


def hidden(text: str) -> Hidden:
    """The content of an environment file, without the values wherever it is shown."""
    return Hidden(text, env_file.shown(text))


def history(rows: Iterable[str]) -> tuple[PackageChange, ...]:
    """Return what the package manager's log tells, oldest first, without passwords."""
    return tuple(
        replace(change, command=without_password(change.command)) if change.command else change
        for change in apt_log.read(tuple(rows))
    )


def _fingerprints(digits: str) -> tuple[str, ...] | Unknown:
    try:
        return fingerprints(bytes.fromhex(digits))
    except ValueError:
        return Unknown("it is not a readable keyring")


def _sources(answer: Answer, key: str) -> tuple[Source, ...] | Unknown:
    """Return NVIDIA's and the declared one, from the lines of apt's lists as "FILE:LINE".

    In the declared URL {distro} and {arch} stand for any word.
    """
    rows = answer.value(tuple[Str, ...], key)
    declared = answer.value(Str | None, "nvidia.repository")
    if isinstance(rows, Unknown) or isinstance(declared, Unknown):
        return rows if isinstance(rows, Unknown) else declared
    files: dict[str, list[str]] = {}
    for name, _, line in (row.partition(":") for row in rows):
        files.setdefault(name, []).append(line)
    sources = (each for name, found in files.items() for each in apt_lists.read(name, found))
    parts = re.split(r"\{distro\}|\{arch\}", (declared or "").rstrip("/"))
    form = "[^/]+".join(map(re.escape, parts))

    def matters(source: Source) -> bool:
        text = f"{source.file.rpartition('/')[2]} {source.uri}".lower()
        is_declared = declared and re.fullmatch(form, source.uri.rstrip("/"))
        carriers = ("nvidia", "cuda/repos", "cuda-repo", "graphics-drivers")
        return bool(is_declared) or any(each in text for each in carriers)

    return tuple(filter(matters, sources))


def _entries(answer: Answer, key: str) -> Mapping[str, Entry | Unknown] | Unknown:
    """What the owner says counts where root said no: root tells which paths are left to it."""
    form = Mapping[Str, Entry | Unknown]
    entries, told = answer.value(form, key), answer.value(form, OWNED)
    left = answer.value(tuple[Str, ...], "layout.left")
    if isinstance(entries, Unknown) or isinstance(left, Unknown):
        return entries if isinstance(entries, Unknown) else left
    if isinstance(told, Unknown):
        return {**entries, **dict.fromkeys(left, told)}
    owned = {path: told.get(path, Unknown(f"the owner did not tell of {path}")) for path in left}
    return {**entries, **owned}


def _preload_problem(answer: Answer, key: str) -> str | Unknown | None:
    roots: str | Unknown | None = answer.value(Str | None, key)
    return answer.value(Str | None, "system.owners_problem") if roots is None else roots


def _libdir(answer: Answer, key: str) -> str:
    told = answer.value(Str, key)
    return "" if isinstance(told, Unknown) else told


def _of(form: Any, make: Callable[[Any], Any], key: str = "") -> Callable[[Answer, str], Any]:
    """Return what makes a field of something that a host told; `Unknown` and None stay.

    + key: under which it was told, where that is not the field's own
    """

    def read(answer: Answer, own: str) -> Any:
        told = answer.value(form | None, key or own)
        return told if told is None or isinstance(told, Unknown) else make(told)

    return read


_MADE: dict[str, Callable[[Answer, str], Any]] = {
    "system.preload_problem": _preload_problem,
    "nvidia.sources": _sources,
    "nvidia.keyring": _of(str, _fingerprints),
    "nvidia.history": _of(tuple[Str, ...], history),
    "libcuda.libdir": _libdir,
    "layout.entries": _entries,
    "build.stamp": _of(Whole, Manifest.read),
    "build.wheel": _of(Whole, Manifest.read),
    "build.state": _of(Whole, BuildState.read),
    "environment.text": _of(Whole, hidden),
    "smoke.stamp": _of(Whole, Stamp.read),
    "smoke.verdict": _of(Whole, Verdict.read),
    "smoke.verdict_sha256": _of(
        Whole, lambda text: hashlib.sha256(text.encode()).hexdigest(), "smoke.verdict"
    ),
}
"""Field -> what makes it of what was told; all others are told as they are."""
