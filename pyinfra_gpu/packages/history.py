"""Apt's own log of what it did, read for the packages that matter here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import cast, get_args

from pyinfra_gpu.packages.model import Action, PackageChange

MARK = "pyinfra-gpu::transaction"
"""An option without effect in our own command lines, which apt's log keeps with the rest."""

_ROW = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d) +(?P<time>\d\d:\d\d:\d\d)\|(?P<action>\w+)\|(?P<name>[^|]+)"
    r"\|(?P<versions>[^|]*)\|(?P<by>[^|]*)\|(?P<command>.*)",
    re.ASCII,
)


def is_ours(command: str | None) -> bool:
    """Tell whether a command line of apt's log is a transaction of ours."""
    return MARK in (command or "")


def read(rows: Sequence[str]) -> Iterator[PackageChange]:
    """Read the probe's rows "DATE TIME|ACTION|NAME|VERSIONS|BY|COMMAND", oldest first.

    A row that the log's own damage made unreadable is passed over: the others still tell.
    """
    for row in rows:
        told = _ROW.fullmatch(row)
        if told is None or told["action"] not in get_args(Action):
            continue
        old, new = _versions(told["action"], told["versions"])
        if old or new:
            yield PackageChange(
                when=f"{told['day']}T{told['time']}",
                command=told["command"].strip() or None,
                by=told["by"].strip() or None,
                action=cast(Action, told["action"]),
                name=told["name"],
                old=old,
                new=new,
            )


def _versions(action: str, text: str) -> tuple[str | None, str | None]:
    """Apt writes (OLD, NEW) for a change of version, else the one, and "automatic" behind it."""
    first, *more = [word.strip() or None for word in text.split(",")]
    if action in ("Upgrade", "Downgrade"):
        return first, more[0] if more else None
    if action == "Reinstall":
        return first, first
    return (None, first) if action == "Install" else (first, None)
