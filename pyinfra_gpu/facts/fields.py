"""From the probe's lines to fields: the framing, and what "unknown" means.

The format is described at the top of `on_host/probe/start.sh`. A field is a value, `None` (the
host says that it is not there) or `Unknown` (the host would not tell, and why). Reading never
raises: what cannot be understood is unknown.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

from pydantic import BaseModel

from pyinfra_gpu.text import one_line, visible

FIRST_LINE = "pyinfra-gpu-probe 1"
LAST_LINE = "pyinfra-gpu-probe end"
CUT_OFF = "the probe's output was cut off"
NOT_REPORTED = "the probe did not report it"
LATE = "the host was asked for it and did not answer in time"
MOST_ROWS = 10_000  # of one list; a host with every package there is has a fifth of that
TEXT_LIMIT = 65536  # bytes; the probe sends one byte more, so that an excess is seen


@dataclasses.dataclass(frozen=True, slots=True)
class Unknown:
    """Stands in a field that the host would not tell.

    + reason: one clause that says why, e.g. "git is not on this host"
    """

    reason: str

    def __str__(self) -> str:
        """Say so in words: it may stand in a sentence."""
        return f"unknown ({self.reason})"

    def to_json(self) -> dict[str, str]:
        """The form in which pyinfra prints it."""
        return {"unknown": self.reason}


@dataclasses.dataclass(frozen=True, slots=True)
class Hidden:
    """A text that is compared, and shown as something else.

    + text: what the host has
    + shown: what takes its place wherever it is printed
    """

    text: str = dataclasses.field(repr=False)
    shown: str


def as_json(value: object) -> object:
    """Plain data (dicts, lists, strings, numbers) for records and whatever they hold.

    Without the passwords in addresses: what is printed ends up in logs.
    """
    if isinstance(value, Unknown):
        return value.to_json()
    if isinstance(value, Hidden):
        return value.shown
    if isinstance(value, BaseModel):
        return as_json(value.model_dump(mode="json", by_alias=True, exclude_unset=True))
    if dataclasses.is_dataclass(value):
        return {
            field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [as_json(item) for item in value]
    return without_password(value) if isinstance(value, str) else value


def without_password(text: str) -> str:
    """The text with *** in place of the password in every address like https://me:pw@host/."""
    return re.sub(r"(://[^/@:\s]*):[^/@\s]*@", r"\1:***@", text)


class Jsonable:
    """Gives a record the hook through which pyinfra prints a fact as JSON."""

    __slots__ = ()

    def to_json(self) -> object:
        """The record as plain data; an unknown field is `{"unknown": reason}`."""
        return as_json(self)


Raw = bytes | None | Unknown


class Fields:
    """What the probe said, by key.

    + found: whether the probe's first line was seen
    + whole: whether its last line was seen too
    """

    def __init__(self, entries: Mapping[str, list[Raw]], ended: set[str], found: bool, whole: bool):
        self._entries = entries
        self._ended = ended
        self.found = found
        self.whole = whole

    def _missing(self, key: str) -> Unknown:
        given_up = self._entries.get("look.late", [])
        late = {_decoded(each) for each in given_up if isinstance(each, bytes)}
        parts = key.split(".")
        if late & {".".join(parts[: count + 1]) for count in range(len(parts))}:
            return Unknown(LATE)
        return Unknown(NOT_REPORTED if self.whole else CUT_OFF)

    def raw(self, key: str) -> Raw:
        """The bytes of a single value. A key that came twice with different values is unknown."""
        entries = self._entries.get(key)
        if not entries:
            return self._missing(key)
        if any(entry != entries[0] for entry in entries):
            return Unknown("the probe reported it more than once")
        return entries[0]

    def text(self, key: str) -> str | Unknown | None:
        r"""A single value as text; bytes that are not UTF-8, and control characters, are `\xNN`."""
        raw = self.raw(key)
        return visible(_decoded(raw)) if isinstance(raw, bytes) else raw

    def document(self, key: str) -> str | Unknown | None:
        """A file's whole text; unknown where it is longer than `TEXT_LIMIT` bytes."""
        raw = self.raw(key)
        if isinstance(raw, bytes) and len(raw) > TEXT_LIMIT:
            return Unknown(f"the file is longer than {TEXT_LIMIT // 1024} KiB")
        return _decoded(raw) if isinstance(raw, bytes) else raw

    def number(self, key: str) -> int | Unknown:
        """A single decimal number, not negative; its absence is unknown as well."""
        text = self.present(key)
        if isinstance(text, Unknown):
            return text
        if text.isascii() and text.isdigit() and len(text) < 20:
            return int(text)
        return Unknown(f"{text[:40]!r} is not a number")

    def flag(self, key: str) -> bool | Unknown:
        """A single "0" or "1"; its absence is unknown as well."""
        number = self.number(key)
        if isinstance(number, Unknown) or number in (0, 1):
            return number if isinstance(number, Unknown) else number == 1
        return Unknown(f"{number} is neither 0 nor 1")

    def present(self, key: str) -> str | Unknown:
        """A single value that every host has; its absence is unknown as well."""
        text = self.text(key)
        return Unknown("the host does not show it") if text is None else text

    def items(self, key: str) -> tuple[str, ...] | Unknown:
        """All values of a list. One unknown item, or a list without its end, is unknown."""
        values = []
        entries = self._entries.get(key, [])
        if len(entries) > MOST_ROWS:
            return Unknown(f"the host told of more than {MOST_ROWS}")
        for entry in entries:
            if isinstance(entry, Unknown):
                return entry
            if isinstance(entry, bytes):
                values.append(visible(_decoded(entry)))
        return tuple(values) if key in self._ended else self._missing(key)


def not_asked(fields: Fields) -> bool:
    """Whether the probe was not asked for what only a host with an NVIDIA driver has."""
    return fields.flag("nvidia.asked") is False


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def read_fields(lines: Iterable[str]) -> Fields:
    """Sort the probe's lines by key.

    Lines before the first marker (a login banner) are passed over. Where the last marker is
    missing, the last line is dropped too: it may have been cut in the middle of a value.
    """
    body, found, whole = _body(lines)
    entries: dict[str, list[Raw]] = {}
    ended: set[str] = set()
    texts: dict[str, list[str]] = {}
    lengths: dict[str, str] = {}
    for line in body:
        key, blank, rest = line.partition(" ")
        if not blank or not rest:
            continue
        if rest == ".":
            ended.add(key)
        elif rest[0] == "+":
            texts.setdefault(key, []).append(rest[1:] + "\n")
        elif rest[0] == "#":
            lengths[key] = rest[1:]
        else:
            entries.setdefault(key, []).append(_entry(rest[0], rest[1:]))
    for key, rows in texts.items():
        if lengths.get(key) == str(len(rows)):
            text = "".join(rows).encode("utf-8", "backslashreplace")
            entries.setdefault(key, []).append(text)
    return Fields(entries, ended, found, whole)


def _body(lines: Iterable[str]) -> tuple[list[str], bool, bool]:
    stripped = [line.rstrip("\r\n") for line in lines]
    if FIRST_LINE not in stripped:
        return [], False, False
    body = stripped[stripped.index(FIRST_LINE) + 1 :]
    if LAST_LINE in body:
        return body[: body.index(LAST_LINE)], True, True
    return body[:-1], True, False


def _entry(tag: str, value: str) -> Raw:
    if tag == "=":
        return value.encode("utf-8", "backslashreplace")
    if tag == "?":
        return Unknown(one_line(value))
    if tag == "-" and not value:
        return None
    if tag in ("x", "!"):
        try:
            raw = bytes.fromhex(value)
        except ValueError:
            return Unknown("the probe's line for it cannot be read")
        return raw if tag == "x" else Unknown(one_line(_decoded(raw)))
    return Unknown("the probe's line for it cannot be read")
