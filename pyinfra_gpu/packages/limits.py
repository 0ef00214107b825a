"""What a transaction may do on a host: the driver, and nothing behind anybody's back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyinfra_gpu.packages.model import Change, Simulation
from pyinfra_gpu.packages.names import (
    LABEL,
    branch_of,
    driver_version,
    is_driver,
    is_kernel,
    is_nvidia,
    plain,
)
from pyinfra_gpu.packages.versions import order


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What is declared, and what is there.

    + branch: the driver branch that must not be left; None where none is declared
    + version: the driver version that all its packages must get; None = any of the branch
    + url: NVIDIA's declared repository, without the slash at its end; "" where there is none
    + installed: the driver's packages, name -> version
    + labels: what the archives call themselves that the driver comes from, where that is not the
      declared repository
    + apart: packages of such an archive whose versions are their own
    """

    branch: int | None
    version: str | None
    url: str
    installed: Mapping[str, str]
    labels: tuple[str, ...] = ()
    apart: frozenset[str] = frozenset()

    def is_driver(self, name: str, version: str) -> bool:
        """Tell whether a package is of the driver, and so of its version."""
        return is_driver(name, version) and plain(name) not in self.apart


def judge(simulation: Simulation, limits: Limits) -> list[str]:
    """Return why a transaction must not run, one clause for each reason; [] = it may."""
    reasons = [f"apt said something that is not understood ({line})" for line in simulation.odd]
    for change in simulation.changes:
        reason = (
            _removal(change)
            or _installation(change, limits)
            or _origin(change, simulation, limits)
            or _hold(change, simulation)
        )
        if reason:
            reasons.append(reason)
    if not reasons and (mixed := mixture(simulation, limits)):
        reasons.append(mixed)
    return reasons


def _removal(change: Change) -> str | None:
    if change.new is not None:
        return None
    if change.old and is_driver(change.name, change.old):
        return None
    return f"it would remove {change.name}, which is no part of the driver"


def _installation(change: Change, limits: Limits) -> str | None:
    if change.new is None or change.new == change.old:
        return None  # the same again, as where an interrupted installation is finished
    if is_kernel(change.name):
        return f"it would install {change.name} {change.new}, a kernel"
    if limits.is_driver(change.name, change.new):
        return _driver(change, limits)
    if change.old is None:
        return None
    if order(change.new) < order(change.old):
        return f"it would downgrade {change.name} from {change.old} to {change.new}"
    return None


def _driver(change: Change, limits: Limits) -> str | None:
    """Keep the driver's packages at the declared branch and version, and never silently lower."""
    new = driver_version(change.new or "")
    step = f"{change.name} from {change.old} to {change.new}"
    if limits.branch is not None and branch_of(change.new or "") != limits.branch:
        return (
            f"{change.name} {change.new} would leave the declared branch {limits.branch} of the"
            " driver"
        )
    if limits.version is not None and new != limits.version:
        return f"{change.name} would get version {change.new}, not {limits.version} as the rest"
    if change.old is None or order(change.new or "") >= order(change.old):
        return None
    # Going back to the declared branch, or to a version that was asked for, is what data says.
    if limits.version is not None or branch_of(change.old) != limits.branch:
        return None
    return f"it would downgrade {step}: declare `driver_version` if that is wanted"


def _origin(change: Change, simulation: Simulation, limits: Limits) -> str | None:
    """NVIDIA's packages come from the declared repository, by its label and by the file's URI.

    A driver of the distribution's own comes from its archive, by label: mirrors are many.
    """
    if change.new is None or change.new == change.old or not _belongs(change):
        return None
    if limits.labels and not plain(change.name).startswith("cuda-"):
        if set(change.labels) & set(limits.labels):
            return None
        told = " or ".join(change.labels) or "unnamed"
        return f"{change.name} {change.new} would come from another origin ({told})"
    # Data may say file:///path where apt writes file:/path.
    url = limits.url.replace("file:///", "file:/")
    elsewhere = [
        uri
        for (name, arch), uri in simulation.fetches.items()
        if name == plain(change.name) and change.arch in (None, arch)
        if not uri.startswith(f"{url}/")
    ]
    if LABEL in change.labels and not elsewhere:
        return None
    origin = elsewhere[0] if elsewhere else " or ".join(change.labels)
    return f"{change.name} {change.new} would come from another origin ({origin or 'unnamed'})"


def _belongs(change: Change) -> bool:
    """Tell whether a package must come from NVIDIA; helpers of the distribution need not."""
    name = plain(change.name)
    return is_driver(name, change.new or "") or (
        is_nvidia(name) and name.startswith(("cuda-", "libcuda"))
    )


def _hold(change: Change, simulation: Simulation) -> str | None:
    """What somebody else put on hold stays; the holds on the driver are ours."""
    name = plain(change.name)
    if not {name, change.name} & simulation.held:
        return None
    version = change.new or change.old or ""
    if is_driver(name, version) or is_driver(name, change.old or ""):
        return None
    return f"it would change {name}, which is on hold (`apt-mark unhold {name}` frees it)"


def mixture(simulation: Simulation, limits: Limits) -> str | None:
    """Return how the driver's packages would differ from each other afterwards, or None.

    A transaction that leaves the driver alone may run while they differ: others repair that.
    """
    after, touched = dict(limits.installed), False
    for change in simulation.changes:
        touched |= limits.is_driver(change.name, change.new or change.old or "")
        after.pop(change.name, None)
        if change.new is not None and limits.is_driver(change.name, change.new):
            after[change.name] = change.new
    versions: dict[str, str] = {}
    for name, version in sorted(after.items()):
        if (driver := driver_version(version)) and plain(name) not in limits.apart:
            versions.setdefault(driver, name)
    if len(versions) < 2 or not touched:
        return None
    told = ", ".join(f"{name} {version}" for version, name in versions.items())
    return f"the driver's packages would be of more than one version ({told})"
