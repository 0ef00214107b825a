"""What each key of a preset takes: single values, and dicts whose wrong entry is named."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

LONGEST = 4096  # characters of one text
_ARGUMENT = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def is_text(value: object) -> bool:
    """Tell whether something is a text of one line."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST and value.isprintable()


def _inside(value: object) -> bool:
    """Tell whether a path stays in the repository."""
    parts = str(value).split("/")
    return is_text(value) and not str(value).startswith(("/", "-")) and ".." not in parts


def _module(value: object) -> bool:
    return isinstance(value, str) and bool(re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", value, re.ASCII))


def _gib(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1 << 20


def _mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(is_text, value))


def _multiples(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        is_text(name)
        and isinstance(factors, list | tuple)
        and factors
        and all(is_text(one) or (type(one) is int and one > 0) for one in factors)
        for name, factors in value.items()
    )


_GIB = "a number of GiB"
_WANTED: Mapping[str, tuple[str, Any]] = {
    "module": ("a module's name, as 'scripts.base_train'", _module),
    "file": ("a path in the repository, as 'train.py'", _inside),
    "launch": ("'torchrun' or 'python'", lambda value: value in ("torchrun", "python")),
    "arguments": ("a dict, as {'depth': 20}", _mapping),
    "words": ("a list of texts", _texts),
    "variables": ("a dict of names and texts", _mapping),
    "ranks": (
        "a whole number from 1 to 64, or None for all GPUs",
        lambda value: value is None or (type(value) is int and 1 <= value <= 64),
    ),
    "gpu_gib": (_GIB, _gib),
    "ram_gib": (_GIB, _gib),
    "checkpoint_gib": (_GIB, _gib),
    "checkpoints": ("a glob, as '{run}/checkpoints/step-*'", is_text),
    "complete": ("a list of file names", _texts),
    "resume": ("a dict, as {'resume': '{checkpoint}'}", _mapping),
    "try_with": ("a dict, as {'steps': 5}", _mapping),
    "multiples": ("a dict, as {'total': ['batch', 'length', 'ranks']}", _multiples),
    "wandb": ("True or False", lambda value: isinstance(value, bool)),
    "resume_after_reboot": ("True or False", lambda value: isinstance(value, bool)),
    "extends": ("a preset's name", lambda value: isinstance(value, str)),
}
_NAMED = ("arguments", "resume", "try_with", "variables")
"""The keys whose values are names, each with a value of its own."""


def wrong(key: str, value: object) -> tuple[str, str] | None:
    """Return what is wrong with the value of a key and what to do about it, two clauses, or None.

    Nothing of a text is shown: it may be a secret that lost its place.
    """
    wants, good = _WANTED[key]
    if not good(value):
        return "a wrong value", f"give it {wants}"
    if key in _NAMED and isinstance(value, Mapping):
        found = (_wrong_entry(key, name, each) for name, each in value.items())
        return next((each for each in found if each), None)
    return None


def _wrong_entry(key: str, name: object, value: object) -> tuple[str, str] | None:
    pattern = _VARIABLE if key == "variables" else _ARGUMENT
    if not isinstance(name, str) or not pattern.fullmatch(name):
        if isinstance(name, str) and pattern.fullmatch(bare := name.lstrip("-")):
            return f"the name {name}", f"write {bare}: the dashes are put before it"
        begin = "a letter or _, then letters, digits and _"
        if key != "variables":
            begin = "a letter, then letters, digits, _, . and -"
        return f"the name {named(name)}", f"name it by {begin}, at most 64 in all"
    if (key != "variables" and _number_or_switch(value)) or is_text(value):
        return None
    plain = "a text" if key == "variables" else "a text, a number, True, False or None"
    if not isinstance(value, str):
        return f"for {name} {_kind(value)}", f"give {name} {plain}"
    if not value:
        return f"for {name} an empty text", f"give {name} {plain}, or leave it out"
    if len(value) > LONGEST:
        return f"for {name} a text of {len(value)} characters", f"give at most {LONGEST}"
    odd = next(each for each in value if not each.isprintable())
    called = {"\n": "a line break", "\t": "a tab", "\0": "a NUL character"}
    said = called.get(odd, f"the character {odd!a}")
    return f"for {name} a text with {said}", f"write {name} on one line, in printable characters"


def named(name: object) -> str:
    """Return a wrong name as an error shows it: what stands behind "=" may be a secret."""
    before, equals, _ = str(name).partition("=")
    return f"{before + '=...' if equals else name!r:.80}"


def _number_or_switch(value: object) -> bool:
    return value is None or (isinstance(value, bool | int | float) and math.isfinite(value))


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value)
    number = isinstance(value, int | float)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}, which is no number"
    return "a number" if number else f"a {type(value).__name__}"
