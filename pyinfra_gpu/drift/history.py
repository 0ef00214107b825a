"""Which package action explains a deviation, by apt's own log on the host."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyinfra_gpu.facts.apt_history import PackageChange

OUR_MARK = "pyinfra-gpu::transaction"
"""An option without effect by which apt's log tells that a transaction was ours."""

_COMMAND = 72  # letters of a command line that are shown
_VERBS = {
    "Install": "installed",
    "Upgrade": "upgraded",
    "Downgrade": "downgraded",
    "Remove": "removed",
    "Purge": "purged",
    "Reinstall": "reinstalled",
}


def explain(packages: Sequence[str], history: Sequence[PackageChange]) -> PackageChange | None:
    """Return the newest change of one of these packages, or None where the log has none.

    + packages: names, the most telling first; a trailing * stands for any ending
    + history: what apt did, newest last

    One run of apt changes many packages at the same moment: of those, the one that `packages`
    names first is returned. What we did last left the packages as declared: whatever came after
    it, apt has not done it, and nothing is returned.
    """
    ranked = [(_rank(change, packages), change) for change in history]
    matching = [(rank, change) for rank, change in ranked if rank is not None]
    if not matching:
        return None
    if OUR_MARK in (matching[-1][1].command or ""):
        return None
    moment = matching[-1][1].when
    return min(
        ((rank, change) for rank, change in matching if change.when == moment),
        key=lambda each: each[0],
    )[1]


def _rank(change: PackageChange, packages: Sequence[str]) -> int | None:
    """Return the place of the first pattern that this package's name matches."""
    name = change.name.partition(":")[0]  # apt writes NAME:ARCHITECTURE
    for place, pattern in enumerate(packages):
        prefix = pattern.endswith("*")
        if name.startswith(pattern[:-1]) if prefix else name == pattern:
            return place
    return None


def what(change: PackageChange) -> str:
    """Say what was done: "libcuda1 580.95.05-1 -> 580.105.08-1", "dkms 3.0.10 removed"."""
    if change.action in ("Upgrade", "Downgrade"):
        return f"{change.name} {change.old} -> {change.new}"
    return f"{change.name} {change.new or change.old} {_VERBS[change.action]}"


def who(change: PackageChange) -> str | None:
    """Say who did it: the command, and who asked for it through sudo; None where unknown.

    A command that lists a screen of packages is cut; apt's own log has it whole.
    """
    command = shorten(change.command, _COMMAND, placeholder=" ...") if change.command else None
    if change.by and command:
        return f"{change.by}: {command}"
    return command or change.by


def moment(change: PackageChange) -> str:
    """Return day and minute, in the host's own time: "2026-11-21 06:12"."""
    return change.when.replace("T", " ")[:16]


def sentence(change: PackageChange) -> str:
    """Say what was done, when (in the host's own time) and by whom, in one sentence."""
    day, _, clock = change.when.partition("T")
    author = who(change)
    return f"{what(change)} on {day} at {clock[:5]}" + (f" by {author}" if author else "")


def as_since(change: PackageChange | None) -> dict[str, str | None] | None:
    """Return a change as plain data: what was done, when and by whom."""
    if change is None:
        return None
    return {"when": change.when, "by": who(change), "change": what(change)}
