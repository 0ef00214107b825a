"""From a host's lines to the whole record: one document in JSON, read field by field.

The types of `record.py` are the only description: what is not there, or has another type than its
field, is `Unknown` in that field alone. No answer, whatever it is, takes another field or another
host with it. The owner's half is a text in root's document and counts for the owner's fields only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache, partial
from typing import Any, get_type_hints

from pyinfra_gpu.facts import document
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Entry, Record, Rows
from pyinfra_gpu.on_host.probe.look import FIRST_LINE, LAST_LINE, NVIDIA_KEYS, OWNED, OWNERS_KEYS

LONGEST = 2 << 20
"""Bytes that an answer may have; a host with all there is to tell comes to a quarter of that."""
MOST_ROWS = 10_000
"""Rows of one list; a host with every package there is has a fifth of that."""
CUT_OFF = "the probe's output was cut off"
NOT_REPORTED = "the probe did not report it"


_object: Any = partial(document.read, dict[str, Any], limit=LONGEST)


class Answer:
    """What a host answered.

    + problem: why nothing can be read out of it, and what helps; None where it can
    + python: whether there is a Python that could look
    """

    def __init__(self, lines: Iterable[str]) -> None:
        rows = [line.rstrip("\r\n") for line in lines]
        body = rows[rows.index(FIRST_LINE) + 1 :] if FIRST_LINE in rows else []
        whole = LAST_LINE in body
        text = "\n".join(body[: body.index(LAST_LINE)]) if whole else ""
        self._roots: Any = _object(text) if whole else Unknown(CUT_OFF)
        self._owners: Any = _object(self.value(str, "owner"))
        self.python = isinstance(self._roots, Unknown) or self._roots.get("python3", 3) is not None
        self.problem = None
        if FIRST_LINE not in rows:
            first = next((line.strip() for line in rows if line.strip()), "")
            said = f"it says {first[:80]!r}" if first else "it says nothing"
            self.problem = (
                f"the login shell does not run what it is given ({said}): `ssh HOST echo ok` must"
                " print ok; what its start-up files do without a terminal keeps it from that"
            )
        elif not whole:
            self.problem = (
                "its answer was cut off, so nothing is concluded from it: run again, and if it"
                " stays so, `ssh HOST` by hand says what ends the connection"
            )
        elif not self.python:
            self.problem = (
                "it has no /usr/bin/python3 that could look: a deploy installs python3-minimal"
                " first; by hand, install that package"
            )
        elif isinstance(self._roots, Unknown):
            self.problem = f"its answer could not be read: {self._roots.reason}"

    def value(self, form: Any, key: str) -> Any:
        """Return what was told under a key as that type; `Unknown` where it is something else."""
        reported = self._owners if key in OWNERS_KEYS else self._roots
        if isinstance(reported, Unknown):
            return reported
        value = reported.get(key, {"?": NOT_REPORTED})
        if isinstance(value, list | dict) and len(value) > MOST_ROWS:
            return Unknown(f"the host reported more than {MOST_ROWS}")
        kind = Unknown if isinstance(value, dict) and "?" in value else form
        return document.validated(kind, json.dumps(value))

    def _entries(self) -> Any:
        """What the owner says counts where root said no: root tells which paths are left to it."""
        form = Mapping[str, Entry | Unknown]
        entries, left = self.value(form, "layout.entries"), self.value(Rows, "layout.left")
        if isinstance(entries, Unknown) or isinstance(left, Unknown):
            return entries if isinstance(entries, Unknown) else left
        reported = self.value(form, OWNED)
        if isinstance(reported, Unknown):
            return {**entries, **dict.fromkeys(left, reported)}
        return entries | {
            path: reported.get(path, Unknown(f"the owner did not tell of {path}")) for path in left
        }

    def record(self) -> Record:
        """Return the whole record; never raises, whatever was told."""
        without_gpu = isinstance(self._roots, dict) and self._roots.get("nvidia") is False
        made: dict[str, Any] = {}
        for part, form in _hints(Record).items():
            reported = {each.name: f"{part}.{each.name}" for each in fields(form)}
            made[part] = form(
                **{
                    name: self.value(_hints(form)[name], key)
                    for name, key in reported.items()
                    if not (without_gpu and key in NVIDIA_KEYS) and key != "layout.entries"
                },
                **({"entries": self._entries()} if part == "layout" else {}),
            )
        return Record(**made)


def parse(lines: Iterable[str]) -> Record:
    """Return the record that a host's lines tell; never raises, whatever the lines hold."""
    return Answer(lines).record()


@cache
def _hints(form: type) -> dict[str, Any]:
    return get_type_hints(form, include_extras=True)
