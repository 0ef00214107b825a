"""Apt's own log of what it did, read for the packages that matter here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import cast, get_args

from pyinfra_gpu.packages.model import Action, PackageChange

MARK = "pyinfra-gpu::transaction"
"""An option without effect in our own command lines, which apt's log keeps with the rest."""


def is_ours(command: str | None) -> bool:
    """Tell whether a command line of apt's log is a transaction of ours."""
    return MARK in (command or "")


def read(rows: Sequence[str]) -> Iterator[PackageChange]:
    """Read the probe's rows "DATE TIME|ACTION|NAME|VERSIONS|BY|COMMAND", oldest first.

    A row that the log's own damage made unreadable is passed over: the others still tell.
    """
    for row in rows:
        if (change := _change(row)) is not None:
            yield change


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
        command=command.strip() or None,
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
