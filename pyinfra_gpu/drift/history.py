"""Which package action explains a deviation, by the package manager's own log on the host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from textwrap import shorten

from pyinfra_gpu.packages.model import PackageChange
from pyinfra_gpu.packages.names import rank

_COMMAND = 72  # letters of a command line that are shown


def explain(packages: Sequence[str], history: Sequence[PackageChange]) -> PackageChange | None:
    """Return the newest change of one of these packages, or None where the log has none.

    + packages: names, the most telling first; a trailing * stands for any ending
    + history: what the package manager did, newest last

    One run of it changes many packages at the same moment: of those, the one that `packages`
    names first is returned. What we did last left the packages as declared: whatever came after
    it, no package has done it, and nothing is returned.
    """
    ranked = [(rank(change.name, packages), change) for change in history]
    matching = [(place, change) for place, change in ranked if place is not None]
    if not matching or matching[-1][1].ours:
        return None
    newest = [each for each in matching if each[1].when == matching[-1][1].when]
    return min(newest, key=lambda each: each[0])[1]


def what(change: PackageChange) -> str:
    """Say what was done: "libcuda1 580.95.05-1 -> 580.105.08-1", "dkms 3.0.10 removed"."""
    if change.action in ("Upgrade", "Downgrade"):
        return f"{change.name} {change.old} -> {change.new}"
    done = f"{change.action.lower().removesuffix('e')}ed"
    return f"{change.name} {change.new or change.old} {done}"


def who(change: PackageChange) -> str | None:
    """Say who did it: the command, and who asked for it through sudo; None where unknown.

    A command that lists a screen of packages is cut; the log has it whole.
    """
    command = _cut(change.command) if change.command else None
    return ": ".join(filter(None, (change.by, command))) or None


@lru_cache(maxsize=1024)  # the hosts of a fleet were sent the same commands, and `shorten` is slow
def _cut(command: str) -> str:
    return shorten(command, _COMMAND, placeholder=" ...")


def moment(change: PackageChange) -> str:
    """Return day and minute, in the host's own time: "2026-11-21 06:12"."""
    return change.when.replace("T", " ")[:16]


def as_since(change: PackageChange | None) -> dict[str, str | None] | None:
    """Return a change as plain data: what was done, when and by whom."""
    if change is None:
        return None
    return {"when": change.when, "by": who(change), "change": what(change)}
