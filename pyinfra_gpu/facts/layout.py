"""What stands at the paths that the project cares for."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal, cast

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact

Told = Callable[[str], str | Unknown]
"""What the host said of a path."""

_MOST_ARROWS = 8
_LARGEST_READ = 4 << 20  # bytes; of a larger file the probe makes no digest
_HEXADECIMAL = re.compile(r"[0-9a-f]{1,8}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,19}", re.ASCII)

Kind = Literal["file", "dir", "link", "other", "absent"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry(Jsonable):
    """What stands at one path; links are not followed.

    + mode: four octal digits, e.g. "0755"; owner: name, or number where the user has no name
    + sha256: of files up to 4 MiB; size: in bytes, of files; target: where a link points
    """

    kind: Kind
    mode: str | None = None
    owner: str | None = None
    sha256: str | Unknown | None = None
    size: int | None = None
    target: str | Unknown | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutRecord(Jsonable):
    """The paths that were asked for.

    + entries: path -> what stands there; of what the owner can write, as the owner says
    + open: the first place on the way to the prefix that somebody else than root can change; None
      where there is none, or where nothing is done as root
    + owner_problem: why nothing can be looked at as the owner; None where it can, or need not
    """

    entries: Mapping[str, Entry | Unknown] | Unknown
    open: str | Unknown | None = None
    owner_problem: str | Unknown | None = None

    def entry(self, path: str) -> Entry | Unknown:
        """What stands at `path`; unknown if it was not asked for."""
        if isinstance(self.entries, Unknown):
            return self.entries
        return self.entries.get(path, Unknown(f"{path} was not looked at"))


class Layout(ConcernFact[LayoutRecord]):
    """Files and folders: `pyinfra INVENTORY fact pyinfra_gpu.facts.layout.Layout`."""

    def read(self, fields: Fields) -> LayoutRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> LayoutRecord:
    """The files and folders, from the probe's fields."""
    asked, left = fields.items("layout.asked"), fields.items("layout.left")
    return LayoutRecord(
        entries=_entries(fields, asked, left),
        open=fields.text("layout.open"),
        owner_problem=fields.text("layout.owner_problem"),
    )


def _entries(
    fields: Fields, asked: tuple[str, ...] | Unknown, left: tuple[str, ...] | Unknown
) -> Mapping[str, Entry | Unknown] | Unknown:
    if isinstance(asked, Unknown):
        return asked
    if isinstance(left, Unknown):
        return left
    theirs, by_root, by_owner = frozenset(left), _told(fields, "layout"), _told(fields, "owned")
    return {path: (by_owner if path in theirs else by_root)(path) for path in asked}


def _told(fields: Fields, key: str) -> Callable[[str], Entry | Unknown]:
    """Return what root (`layout`) or the owner (`owned`) says of a path.

    All that the host said is gone through once.
    """
    absent, hidden = fields.items(f"{key}.absent"), fields.items(f"{key}.hidden")
    if isinstance(absent, Unknown) or isinstance(hidden, Unknown):
        reason = cast(Unknown, absent if isinstance(absent, Unknown) else hidden)
        return lambda path: reason
    entries: dict[str, Entry | Unknown] = {path: Entry(kind="absent") for path in absent}
    entries |= {path: Unknown(f"no permission to look at {path}") for path in hidden}
    present = _present(fields, key)
    return lambda path: entries.get(path) or present(path)


def _present(fields: Fields, key: str) -> Callable[[str], Entry | Unknown]:
    """Return what tells of a path that is there."""
    rows = fields.items(f"{key}.stat")
    if isinstance(rows, Unknown):
        return lambda path: rows
    words = {row[4]: row for row in (row.split(" ", 4) for row in rows) if len(row) == 5}
    digests, targets = _digests(fields, key), _targets(fields, key)

    def present(path: str) -> Entry | Unknown:
        if path not in words:
            return Unknown(f"stat said nothing about {path}")
        return _entry(words[path], digests, targets)

    return present


def _entry(words: list[str], digests: Told, targets: Told) -> Entry | Unknown:
    raw_mode, uid, owner, size, path = words
    if not _HEXADECIMAL.fullmatch(raw_mode) or not _DECIMAL.fullmatch(size):
        return Unknown(f"stat said {' '.join(words)[:80]!r}")
    mode, length = int(raw_mode, 16), int(size)
    kind = _kind(mode)
    sha256 = digests(path) if kind == "file" and length <= _LARGEST_READ else None
    return Entry(
        kind=kind,
        mode=f"{stat.S_IMODE(mode):04o}",
        owner=uid if owner == "UNKNOWN" else owner,
        sha256=sha256,
        size=length if kind == "file" else None,
        target=targets(path) if kind == "link" else None,
    )


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else "other"


def _digests(fields: Fields, key: str) -> Told:
    unread, rows = fields.items(f"{key}.unread"), fields.items(f"{key}.sha256")
    hidden = frozenset() if isinstance(unread, Unknown) else frozenset(unread)
    found = {} if isinstance(rows, Unknown) else dict(map(_digest, rows))

    def told(path: str) -> str | Unknown:
        if path in hidden:
            return Unknown(f"no permission to read {path}")
        if isinstance(rows, Unknown):
            return rows
        digest = found.get(path, "")
        return digest if len(digest) == 64 else Unknown(f"{path} could not be read")

    return told


def _digest(row: str) -> tuple[str, str]:
    digest, _, name = row.partition("  ")
    # sha256sum marks a line in which it doubled backslashes by one in front.
    if digest.startswith("\\"):
        return name.replace("\\\\", "\\"), digest[1:]
    return name, digest


def _targets(fields: Fields, key: str) -> Told:
    rows = fields.items(f"{key}.target")
    found: dict[str, str] = {}
    for row in () if isinstance(rows, Unknown) else rows:
        # An arrow may be part of a path: each place where one could end, few as they are.
        ends = islice(re.finditer(" -> ", row), _MOST_ARROWS)
        found |= {row[: end.start()]: row[end.end() :] for end in ends}

    def told(path: str) -> str | Unknown:
        if isinstance(rows, Unknown):
            return rows
        return found.get(path, Unknown(f"the link {path} could not be read"))

    return told
