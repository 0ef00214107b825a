"""Apt's own log of what it did, read for the packages that matter here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

from pyinfra_gpu.facts.fields import Jsonable, Unknown, without_password

Action = Literal["Install", "Upgrade", "Downgrade", "Remove", "Purge", "Reinstall"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageChange(Jsonable):
    """What one run of apt did to one package.

    + when: its start in the host's local time, e.g. "2026-11-21T06:12:03"
    + command: what was typed, e.g. "/usr/bin/unattended-upgrade", without passwords in addresses;
      None where the log names none
    + by: who asked through sudo, e.g. "alice (1000)"
    + old, new: versions before and after; None where it was not, or is no longer, installed
    """

    when: str
    command: str | None
    by: str | None
    action: Action
    name: str
    old: str | None
    new: str | None


def parse(rows: tuple[str, ...] | Unknown) -> tuple[PackageChange, ...] | Unknown:
    """Read the probe's rows "DATE TIME|ACTION|NAME|VERSIONS|BY|COMMAND", oldest first.

    A row that the log's own damage made unreadable is passed over: the others still tell.
    """
    if isinstance(rows, Unknown):
        return rows
    changes = (_change(row) for row in rows)
    return tuple(change for change in changes if change is not None)


def _change(row: str) -> PackageChange | None:
    words = row.split("|", 5)
    if len(words) != 6 or words[1] not in get_args(Action):
        return None
    when, action, name, versions, by, command = words
    moment = re.fullmatch(r"(\d{4}-\d\d-\d\d) +(\d\d:\d\d:\d\d)", when, re.ASCII)
    old, new = _versions(action, versions)
    if not moment or not name or (old or new) is None:
        return None
    return PackageChange(
        when=f"{moment[1]}T{moment[2]}",
        command=without_password(command.strip()) or None,
        by=by.strip() or None,
        action=cast(Action, action),
        name=name,
        old=old,
        new=new,
    )


def _versions(action: str, text: str) -> tuple[str | None, str | None]:
    """Apt writes (OLD, NEW) for a change of version, else the one, and "automatic" behind it."""
    words = [word.strip() for word in text.split(",")]
    first = words[0] or None
    if action in ("Upgrade", "Downgrade"):
        return first, (words[1] or None) if len(words) > 1 else None
    if action == "Reinstall":
        return first, first
    return (None, first) if action == "Install" else (first, None)
