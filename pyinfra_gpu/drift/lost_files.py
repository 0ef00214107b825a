"""Which files of packages are gone, or are no longer what the packages brought."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import LostFile, Record
from pyinfra_gpu.text import some

_NAMED = 3  # so many files are named


def lost_files(record: Record, mine: Callable[[str], bool]) -> tuple[LostFile, ...]:
    """Return those of some packages; an incomplete package has a finding of its own.

    + mine: whether a package is one of those, by its name

    Nor any while somebody installs packages: between an old file and a new one is neither.
    """
    lost, packages = record.nvidia.lost, record.nvidia.packages
    busy = isinstance(record.packages.lock_holder, str)
    if busy or isinstance(lost, Unknown) or isinstance(packages, Unknown):
        return ()
    half = {each.name for each in packages if not each.complete}
    return tuple(each for each in lost if each.package not in half and mine(each.package))


def packages_of(lost: Iterable[LostFile]) -> list[str]:
    """Return the packages that have to be installed again for these files."""
    return list(dict.fromkeys(each.package for each in lost))


def told(lost: Iterable[LostFile]) -> str:
    """Name a few of them."""
    return some([str(each) for each in lost], _NAMED)
