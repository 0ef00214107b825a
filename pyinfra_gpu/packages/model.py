"""What a host tells of its packages: where they come from, and what was done to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from textwrap import shorten
from typing import Literal

from pyinfra_gpu.packages.names import rank

MARK = "pyinfra-gpu::transaction"
"""An option without effect in our own command lines, which apt's log keeps with the rest."""

Action = Literal["Install", "Upgrade", "Downgrade", "Remove", "Purge", "Reinstall"]
_COMMAND = 72  # letters of a command line that are shown; the log has it whole


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One enabled source of binary packages: the list that names it, and its address there."""

    file: str
    uri: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageChange:
    """What one run of apt did to one package, by its own log.

    + when: its start in the host's local time, e.g. "2026-11-21T06:12:03"
    + command: what was typed, e.g. "/usr/bin/unattended-upgrade"; None where the log names none
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

    @property
    def moment(self) -> str:
        """Day and minute, in the host's own time: "2026-11-21 06:12"."""
        return self.when.replace("T", " ")[:16]

    @property
    def what(self) -> str:
        """What was done: "libcuda1 580.95.05-1 -> 580.105.08-1", "dkms 3.0.10 removed"."""
        if self.action in ("Upgrade", "Downgrade"):
            return f"{self.name} {self.old} -> {self.new}"
        done = f"{self.action.lower().removesuffix('e')}ed"
        return f"{self.name} {self.new or self.old} {done}"

    @property
    def who(self) -> str | None:
        """Who did it: the command, and who asked for it through sudo; None where unknown."""
        command = _cut(self.command) if self.command else None
        return ": ".join(filter(None, (self.by, command))) or None

    def __str__(self) -> str:
        return f"{self.what}, by {self.who}" if self.who else self.what

    def as_json(self) -> dict[str, str | None]:
        """Return what was done, when and by whom, as plain data."""
        return {"when": self.when, "by": self.who, "change": self.what}


@lru_cache(maxsize=1024)  # the hosts of a fleet were sent the same commands, and `shorten` is slow
def _cut(command: str) -> str:
    return shorten(command, _COMMAND, placeholder=" ...")


def explain(packages: Sequence[str], history: Sequence[PackageChange]) -> PackageChange | None:
    """Return the newest change of one of these packages, or None where the log has none.

    + packages: names, the most telling first; a trailing * stands for any ending
    + history: what the package manager did, newest last

    One run of it changes many packages at the same moment: of those, the one that `packages`
    names first is returned. What we did last left the packages as declared: whatever came after
    it, no package has done it, and nothing is returned.
    """
    ranked = [(rank(change.name, packages), change) for change in history]
    found = [(place, change) for place, change in ranked if place is not None]
    if not found or MARK in (found[-1][1].command or ""):
        return None
    newest = [each for each in found if each[1].when == found[-1][1].when]
    return min(newest, key=lambda each: each[0])[1]
