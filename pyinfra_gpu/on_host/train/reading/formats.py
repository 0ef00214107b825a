"""The formats of log lines that are known: data, and how one line is searched by them.

An entry of `formats.json`:

    name, source   whose lines these are, and where the samples are from
    line           regular expression that tells such a line, with the groups step, steps and epoch
                   where the line has them
    bar            a progress bar: shown again and again with the same step
    fields         name -> expressions for the value, tried in this order; `<number>` stands for it
    samples        lines as programs print them, with all that is read from them: they are the test

Every repetition has a bound and a line is looked at only as far as `LONGEST`, so that no line,
however it is made, takes more than linear time.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

LONGEST = 2000
"""Characters of a line; what programs print of a step comes to a tenth of that."""

LARGEST = 1e15
"""A number that is larger was no count, no rate and no time."""

_NUMBER = (
    r"(?P<number>[+-]?(?:\d{1,3}(?:,\d{3}){1,5}|\d{1,18})(?:\.\d{0,18})?(?:[eE][+-]?\d{1,3})?"
    r"|(?i:[+-]?(?:nan|inf(?:inity)?)))(?![\w.])"
)


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of line; see above."""

    name: str
    line: re.Pattern[str]
    bar: bool
    fields: Mapping[str, tuple[re.Pattern[str], ...]]

    def values(self, text: str) -> dict[str, float]:
        """Return the fields of a line that `line` has told; a number may be none."""
        found = {}
        for name, patterns in self.fields.items():
            match = next((m for each in patterns if (m := each.search(text))), None)
            value = number(match["number"]) if match else None
            if value is not None:
                found[name] = value
        return found


def number(text: str) -> float | None:
    """Return what a log wrote; None for one that is too large to mean anything."""
    value = float(text.replace(",", ""))
    written = text[-1].isdigit() or text[-1] == "."  # and not the word for one that is none
    return None if written and not abs(value) <= LARGEST else value


@cache
def formats() -> tuple[Format, ...]:
    """Return the formats, in the order in which a line is tried."""
    return tuple(_format(entry) for entry in entries())


def entries() -> list[dict[str, Any]]:
    """Return the data as it stands in the file, samples included."""
    data = pkgutil.get_data(__package__, "formats.json")
    found: list[dict[str, Any]] = json.loads(data or b"[]")
    return found


def _format(entry: Mapping[str, Any]) -> Format:
    return Format(
        name=entry["name"],
        line=re.compile(entry["line"], re.ASCII),
        bar=entry.get("bar", False),
        fields={
            name: tuple(
                re.compile(each.replace("<number>", _in_units(each)), re.ASCII) for each in patterns
            )
            for name, patterns in entry["fields"].items()
        },
    )


def _in_units(pattern: str) -> str:
    """A number that a unit follows ends where the unit begins, and any other one at its word."""
    unit = pattern.partition("<number>")[2]
    return _NUMBER.removesuffix(r"(?![\w.])") if unit else _NUMBER
