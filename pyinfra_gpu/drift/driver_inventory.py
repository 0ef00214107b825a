"""The driver on one host: where it comes from, for which kernels, of which packages it is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Literal

from packaging.version import Version

from pyinfra_gpu.drift.rules import if_known
from pyinfra_gpu.packages.names import driver_version, is_driver, plain
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra_gpu.drift.finding import Finding
    from pyinfra_gpu.drift.rules import Rule
    from pyinfra_gpu.facts.record import NvidiaPackage, Record
    from pyinfra_gpu.spec import HostSpec, Modules
    from pyinfra_gpu.stacks import Archive

KINDS: tuple[Literal["compute", "full"], ...] = ("compute", "full")
FLAVOURS: tuple[Modules, Modules] = ("open", "proprietary")


def ours(spec: HostSpec) -> bool:
    """Tell whether the driver is ours to keep on this host."""
    return spec.accelerator == "nvidia" and spec.driver.source != "present"


def of_ours(rule: Rule) -> Rule:
    """Make a rule one that is asked only where the driver is ours to keep."""

    @wraps(rule)
    def asked(spec: HostSpec, record: Record) -> Iterator[Finding]:
        if ours(spec):
            yield from rule(spec, record)

    return asked


def from_nvidia(spec: HostSpec) -> bool:
    """Tell whether the driver comes from NVIDIA's repository, and not from Ubuntu's archive."""
    return spec.driver.source == "nvidia"


def trusts_nvidia(spec: HostSpec) -> bool:
    """Tell whether NVIDIA's repository is needed: for the driver, or else for the toolkit."""
    return ours(spec) and (from_nvidia(spec) or spec.cuda.toolkit)


def archive(spec: HostSpec, record: Record) -> Archive | None:
    """Return what is known of the archive that the driver, with signed modules, comes from.

    None where it comes from NVIDIA, whose modules DKMS builds, or where no archive is known.
    """
    if from_nvidia(spec) or not ours(spec):
        return None
    return catalogue().archives.get(str(record.system.os_id))


def next_kernel(record: Record) -> str | None:
    """Return the kernel that the next boot takes; None where it cannot be told."""
    installed, running = record.kernel.installed, if_known(record.system.kernel, None)
    return (record.kernel.newest or running) if if_known(installed, None) is not None else None


def kernels(record: Record) -> tuple[str, ...]:
    """Return the running kernel and, where it is another, the next one."""
    both = (if_known(record.system.kernel, None), next_kernel(record))
    return tuple(dict.fromkeys(name for name in both if name))


def without_headers(record: Record) -> tuple[str, ...]:
    """Return those of both kernels for which no module could be built."""
    headers = if_known(record.kernel.headers, {})
    return tuple(kernel for kernel in kernels(record) if headers.get(kernel) is False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Packages:
    """The driver's packages on one host.

    + wanted: names of those that are declared; () where none are known for the distribution
    + other: names of those that are of the other flavour alone
    + installed: all that belong to the driver, whether complete or not
    + apart: names of those whose versions are not the driver's: a kernel's, or their own
    """

    wanted: tuple[str, ...]
    other: frozenset[str]
    installed: tuple[NvidiaPackage, ...]
    apart: frozenset[str] = frozenset()

    @property
    def names(self) -> dict[str, str]:
        """Name -> version of what is installed."""
        return {package.name: package.version for package in self.installed}

    @property
    def following(self) -> tuple[NvidiaPackage, ...]:
        """The installed packages that have the driver's version, or ought to."""
        return tuple(each for each in self.installed if plain(each.name) not in self.apart)

    @property
    def missing(self) -> tuple[str, ...]:
        """The wanted packages that are not there at all."""
        return tuple(name for name in self.wanted if name not in self.names)

    @property
    def foreign(self) -> tuple[str, ...]:
        """The installed packages of the other flavour."""
        return tuple(name for name in self.names if name in self.other)

    @property
    def versions(self) -> tuple[str, ...]:
        """The driver versions that are there, oldest first."""
        found = {driver_version(package.version) for package in self.following}
        return tuple(sorted((v for v in found if v), key=Version))


def packages(spec: HostSpec, record: Record) -> Packages:
    """Sort the installed packages; one that is not told is as if it were not there."""
    own, modules = archive(spec, record), spec.driver.modules
    wanted: tuple[str, ...] = ()
    other: frozenset[str] = frozenset()
    of_kernels: set[str] = set()
    if spec.driver.branch is not None:
        theirs = FLAVOURS[FLAVOURS.index(modules) - 1]
        mine, others = (_of_kernels(spec, record, each) for each in (modules, theirs))
        of_kernels = {*mine, *others, *of_series(spec, record)}
        wanted = (*_declared(spec, record, modules, spec.driver.packages), *mine)
        names, other_names = (
            {name for kind in KINDS for name in _declared(spec, record, each, kind)}
            for each in (modules, theirs)
        )
        other = frozenset((other_names - names) | set(others))
    apart = frozenset(own.apart if own else ()) | of_kernels
    return Packages(
        wanted=wanted,
        other=other,
        installed=tuple(
            each
            for each in if_known(record.nvidia.packages, ())
            if plain(each.name) in {*wanted, *other, *of_kernels}
            or (plain(each.name) not in apart and is_driver(each.name, each.version))
        ),
        apart=apart,
    )


def _declared(
    spec: HostSpec, record: Record, modules: Modules, kind: Literal["compute", "full"]
) -> tuple[str, ...]:
    """Return the names of a driver's packages where it comes from; () where none are known."""
    own, branch = archive(spec, record), spec.driver.branch or 0
    if not from_nvidia(spec):
        return (own.driver(branch, modules, kind) if own else None) or ()
    return catalogue().driver_packages(str(record.system.os_id), branch, modules, kind) or ()


def _of_kernels(spec: HostSpec, record: Record, modules: Modules) -> tuple[str, ...]:
    """Return the packages with the archive's own modules for both kernels, if it has any."""
    own, branch = archive(spec, record), spec.driver.branch or 0
    names = kernels(record) if own else ()
    return tuple(own.kernel_package(branch, modules, kernel) for kernel in names if own)


def of_series(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return the packages that bring such modules together with newer kernels.

    Not among those that are wanted: where the newest kernel is not installed, they would bring it.
    """
    own, newest = archive(spec, record), next_kernel(record) or ""
    branch, modules = spec.driver.branch or 0, spec.driver.modules
    name = own.series_package(branch, modules, newest) if own else None
    return (name,) if name else ()
