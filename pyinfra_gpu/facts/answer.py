"""From a host's lines to what it told: one document in JSON, read field by field.

What is not there, or has another type than its field, is `Unknown` in that field alone: no answer,
whatever it is, takes another field or another host with it. The owner's half is a text in root's
document and is taken for the owner's fields only.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, get_type_hints

from pydantic import ValidationError

from pyinfra_gpu.facts import document
from pyinfra_gpu.facts.fields import (
    CUT_OFF,
    FIRST_LINE,
    LAST_LINE,
    MOST_ROWS,
    NOT_REPORTED,
    TEXT_LIMIT,
    Unknown,
)
from pyinfra_gpu.text import one_line, visible

R = TypeVar("R")

LONGEST = 2 << 20
"""Bytes that an answer may have; a host with all there is to tell comes to a quarter of that."""

_OWNERS = re.compile(
    r"(torch|build|training|environment)\..*|owned"
    r"|cuda\.(shell_lines|nvcc|gcc|gxx|compiler|glibc)|smoke\.verdict|driver\.closed"
    r"|storage\.shm_closed|launcher\.own_masked|system\.owners_problem"
)
"""The keys for which the owner's word counts, and no other's."""

_WHOLE_TEXTS = ("cuda.proof", "libcuda.proof", "environment.text", "training.stamp_text")
"""Fields with the text of a file; in all others what would move a cursor is made visible."""


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
        owners = self._roots.pop("owner", {})
        self._owners = _object(owners) if isinstance(owners, str) else _unknown(owners)

    def raw(self, key: str) -> Any:
        """Return what was told under a key: JSON's own types, or `Unknown`."""
        if self.refused:
            return Unknown(self.refused)
        told = self._owners if _OWNERS.fullmatch(key) else self._roots
        if isinstance(told, Unknown):
            return told
        if key in told:
            value = told[key]
            if isinstance(value, list | dict) and len(value) > MOST_ROWS:
                return Unknown(f"the host told of more than {MOST_ROWS}")
            return _unknown(value) if isinstance(value, dict) and set(value) == {"?"} else value
        missing = told.get("missing")
        for name, reason in missing.items() if isinstance(missing, dict) else ():
            if key == name or key.startswith(f"{name}."):
                return Unknown(one_line(str(reason)))
        return Unknown(NOT_REPORTED if self.whole else CUT_OFF)

    def value(self, form: Any, key: str) -> Any:
        """Return what was told under a key as that type; `Unknown` where it is something else."""
        raw = self.raw(key)
        if isinstance(raw, Unknown):
            return raw
        try:
            return document.adapter(form).validate_json(json.dumps(_shown(raw)), strict=True)
        except ValidationError as error:
            return Unknown(document.reason(error))

    def text(self, key: str) -> str | Unknown | None:
        """Return the whole text of a file."""
        raw = self.raw(key)
        if raw is None or isinstance(raw, Unknown):
            return raw
        if not isinstance(raw, str):
            return Unknown("it is no text")
        limit = f"the file is longer than {TEXT_LIMIT // 1024} KiB"
        return Unknown(limit) if len(raw) > TEXT_LIMIT else raw

    def part(self, form: Callable[..., R], name: str, **known: Any) -> R:
        """Return a concern's record.

        + name: with which its keys begin
        + known: fields that are made of something else
        """
        for field, hint in _hints(form).items():
            if field not in known:
                key = f"{name}.{field}"
                known[field] = self.text(key) if key in _WHOLE_TEXTS else self.value(hint, key)
        return form(**known)


def _object(text: str) -> dict[str, Any] | Unknown:
    try:
        found = document.loads(text, LONGEST)
    except ValueError as error:
        return Unknown(one_line(str(error)))
    return found if isinstance(found, dict) else Unknown("it is no object in JSON")


@cache
def _hints(form: Any) -> dict[str, Any]:
    hints = get_type_hints(form, include_extras=True)
    return {each.name: hints[each.name] for each in dataclasses.fields(form)}


def _unknown(value: object) -> Unknown:
    reason = value.get("?") if isinstance(value, Mapping) else None
    return Unknown(one_line(str(reason)) if reason else NOT_REPORTED)


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [_shown(each) for each in value]
    if isinstance(value, dict):
        return {visible(key): _shown(each) for key, each in value.items()}
    return value
