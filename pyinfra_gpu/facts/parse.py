"""From a host's lines to the whole record: one document in JSON, read field by field.

The types of `record.py` are the only description: what is not there, or has another type than its
field, is `Unknown` in that field alone. No answer, whatever it is, takes another field or another
host with it. The owner's half is a text in root's document and counts for the owner's fields only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, get_type_hints

from pydantic import ValidationError

from pyinfra_gpu.facts import document
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Entry, Record, Rows
from pyinfra_gpu.on_host.probe.look import FIRST_LINE, LAST_LINE, NVIDIA_KEYS, OWNED, OWNERS_KEYS
from pyinfra_gpu.text import one_line

LONGEST = 2 << 20
"""Bytes that an answer may have; a host with all there is to tell comes to a quarter of that."""
MOST_ROWS = 10_000
"""Rows of one list; a host with every package there is has a fifth of that."""
CUT_OFF = "the probe's output was cut off"
NOT_REPORTED = "the probe did not report it"
_ENTRIES = "layout.entries"


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
        self._roots: Any = told if isinstance(told, dict) else {}
        self.python = self._roots.get("python3", True) is not None
        owners = self._roots.get("owner")
        self._owners = _object(owners) if isinstance(owners, str) else self._why(owners)

    def _why(self, told: object) -> Unknown:
        """Return why the owner told nothing."""
        reason = told.get("?") if isinstance(told, dict) else None
        return Unknown(one_line(str(reason or (NOT_REPORTED if self.whole else CUT_OFF))))

    def value(self, form: Any, key: str) -> Any:
        """Return what was told under a key as that type; `Unknown` where it is something else."""
        if self.refused:
            return Unknown(self.refused)
        told = self._owners if key in OWNERS_KEYS else self._roots
        if isinstance(told, Unknown):
            return told
        value = told.get(key, {"?": NOT_REPORTED if self.whole else CUT_OFF})
        if isinstance(value, list | dict) and len(value) > MOST_ROWS:
            return Unknown(f"the host reported more than {MOST_ROWS}")
        kind = Unknown if isinstance(value, dict) and "?" in value else form
        try:
            return document.adapter(kind).validate_json(json.dumps(value), strict=True)
        except ValidationError as error:
            return Unknown(document.reason(error))

    def _entries(self) -> Any:
        """What the owner says counts where root said no: root tells which paths are left to it."""
        form = Mapping[str, Entry | Unknown]
        entries, left = self.value(form, _ENTRIES), self.value(Rows, "layout.left")
        if isinstance(entries, Unknown) or isinstance(left, Unknown):
            return entries if isinstance(entries, Unknown) else left
        told = self.value(form, OWNED)
        if isinstance(told, Unknown):
            return {**entries, **dict.fromkeys(left, told)}
        silent = {path: Unknown(f"the owner did not tell of {path}") for path in left}
        return entries | silent | {path: told[path] for path in left if path in told}

    def record(self) -> Record:
        """Return the whole record."""
        left_out = NVIDIA_KEYS if self._roots.get("nvidia") is False else frozenset()
        made = {}
        for part, form in _hints(Record).items():
            hints = {each.name: _hints(form)[each.name] for each in fields(form)}
            keys = {name: f"{part}.{name}" for name in hints}
            made[part] = form(
                **{
                    name: self._entries() if key == _ENTRIES else self.value(hints[name], key)
                    for name, key in keys.items()
                    if key not in left_out
                }
            )
        return Record(**made)


def parse(lines: Iterable[str]) -> Record:
    """Return the record that a host's lines tell; never raises, whatever the lines hold."""
    return Answer(lines).record()


@cache
def _hints(form: type) -> dict[str, Any]:
    return get_type_hints(form, include_extras=True)


def _object(text: str) -> dict[str, Any] | Unknown:
    try:
        found = document.loads(text, LONGEST)
    except ValueError as error:
        return Unknown(one_line(str(error)))
    return found if isinstance(found, dict) else Unknown("it is no object in JSON")
