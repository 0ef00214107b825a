"""What is said of packages: transactions, changes, sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Action = Literal["Install", "Upgrade", "Downgrade", "Remove", "Purge", "Reinstall"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Transaction:
    """What apt is asked to do, without a question and with nothing beside it.

    + packages: as apt-get takes them: "NAME", "NAME=VERSION", "NAME-" to remove it
    + reinstall: also where a package is installed already
    + wait_s: seconds to wait where somebody else takes the lock meanwhile
    """

    packages: tuple[str, ...]
    reinstall: bool = False
    wait_s: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One package that would change.

    + name: with its architecture where that is not the machine's own
    + old: the version that is there, None if it is not
    + new: the version that would be, None if it is removed
    + labels: what the sources that offer the new version call themselves; () where it is removed
    + arch: of the new version, where apt says it
    """

    name: str
    old: str | None
    new: str | None
    labels: tuple[str, ...] = ()
    arch: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """A whole transaction, as apt says it would run.

    + problems: its own errors, one text each; with any of them the changes mean nothing
    + odd: lines that could not be understood, so that nothing may be done
    + fetches: URI of each file that is not there yet, by package name and architecture
    + held: every package that it was told to leave alone
    + unmet: what installed packages depend on and is not there, as a transaction asks for it
    """

    changes: tuple[Change, ...] = ()
    problems: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()
    fetches: Mapping[tuple[str, str], str] = field(default_factory=dict)
    held: frozenset[str] = frozenset()
    unmet: tuple[str, ...] = ()


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
