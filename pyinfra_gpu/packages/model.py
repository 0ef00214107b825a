"""What a host tells of its packages: where they come from, and what was done to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MARK = "pyinfra-gpu::transaction"
"""An option without effect in our own command lines, which apt's log keeps with the rest."""

Action = Literal["Install", "Upgrade", "Downgrade", "Remove", "Purge", "Reinstall"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One enabled source of binary packages.

    + file: the list that names it; uri: as written there
    + signed_by: the keyring file, or "embedded key"; None where any trusted key will do
    + suites, components: as the list names them; () for a flat repository
    """

    file: str
    uri: str
    signed_by: str | None
    suites: tuple[str, ...] = ()
    components: tuple[str, ...] = ()


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
    def ours(self) -> bool:
        """Whether it was a transaction of ours."""
        return MARK in (self.command or "")
