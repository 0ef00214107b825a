"""The package manager behind one protocol; which one a host has, its distribution says."""

from __future__ import annotations

from pyinfra_gpu.packages.apt.manager import Apt
from pyinfra_gpu.packages.manager import PackageManager

__all__ = [
    "BY_DISTRIBUTION",
    "PackageManager",
    "collected",
    "is_ours",
    "manager_for",
    "own_files",
]

_APT = Apt()
BY_DISTRIBUTION: dict[str, PackageManager] = {"debian": _APT, "ubuntu": _APT}
"""The package manager of each distribution, by the ID of its os-release."""


def manager_for(os_id: object) -> PackageManager:
    """Return the package manager of a distribution.

    + os_id: ID of its os-release, as facts have it

    A distribution that is not known gets the first one: preflight refuses such a host before
    anything would be installed there, and what is said of it needs words meanwhile.
    """
    return BY_DISTRIBUTION.get(str(os_id), _APT)


def own_files() -> tuple[str, ...]:
    """Return the files of ours that some package manager reads: which one a look does not know."""
    return tuple(path for each in _managers() for path in each.files.all)


def collected() -> tuple[str, ...]:
    """Return the files by which `collect` asks package managers, as paths below `on_host`.

    What one asks of which the tools are not on the host says just that.
    """
    return tuple(dict.fromkeys(f"packages/{each.collected}" for each in _managers()))


def is_ours(command: str | None) -> bool:
    """Tell whether a command line, as a package manager's log has it, is a transaction of ours."""
    return any(each.mark in (command or "") for each in _managers())


def _managers() -> tuple[PackageManager, ...]:
    return tuple(dict.fromkeys(BY_DISTRIBUTION.values()))
