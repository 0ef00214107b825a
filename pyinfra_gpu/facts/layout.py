"""What stands at the paths that the project cares for."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact

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
    return {path: _entry(fields, "owned" if path in left else "layout", path) for path in asked}


def _entry(fields: Fields, key: str, path: str) -> Entry | Unknown:
    """What stands at a path, as root says (`layout`), or as the owner does (`owned`)."""
    absent, hidden = fields.items(f"{key}.absent"), fields.items(f"{key}.hidden")
    if isinstance(absent, Unknown) or isinstance(hidden, Unknown):
        return absent if isinstance(absent, Unknown) else hidden  # type: ignore[return-value]
    if path in absent:
        return Entry(kind="absent")
    if path in hidden:
        return Unknown(f"no permission to look at {path}")
    rows = fields.items(f"{key}.stat")
    if isinstance(rows, Unknown):
        return rows
    for row in rows:
        words = row.split(" ", 4)
        if len(words) == 5 and words[4] == path:
            return _present(fields, key, path, words)
    return Unknown(f"stat said nothing about {path}")


def _present(fields: Fields, key: str, path: str, words: list[str]) -> Entry | Unknown:
    raw_mode, uid, owner, size, _ = words
    try:
        mode, length = int(raw_mode, 16), int(size)
    except ValueError:
        return Unknown(f"stat said {' '.join(words)[:80]!r}")
    kind = _kind(mode)
    return Entry(
        kind=kind,
        mode=f"{stat.S_IMODE(mode):04o}",
        owner=uid if owner == "UNKNOWN" else owner,
        sha256=_sha256(fields, key, path, length) if kind == "file" else None,
        size=length if kind == "file" else None,
        target=_target(fields, key, path) if kind == "link" else None,
    )


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else "other"


def _sha256(fields: Fields, key: str, path: str, size: int) -> str | Unknown | None:
    if size > 4 << 20:
        return None
    unread, rows = fields.items(f"{key}.unread"), fields.items(f"{key}.sha256")
    if not isinstance(unread, Unknown) and path in unread:
        return Unknown(f"no permission to read {path}")
    if isinstance(rows, Unknown):
        return rows
    for row in rows:
        digest, _, name = row.partition("  ")
        # sha256sum marks a line in which it doubled backslashes by one in front.
        if digest.startswith("\\"):
            digest, name = digest[1:], name.replace("\\\\", "\\")
        if name == path and len(digest) == 64:
            return digest
    return Unknown(f"{path} could not be read")


def _target(fields: Fields, key: str, path: str) -> str | Unknown:
    rows = fields.items(f"{key}.target")
    if isinstance(rows, Unknown):
        return rows
    for row in rows:
        if row.startswith(f"{path} -> "):
            return row[len(path) + 4 :]
    return Unknown(f"the link {path} could not be read")
