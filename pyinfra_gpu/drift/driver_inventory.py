"""The driver's packages on one host: which are declared, which are there, which go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from packaging.version import Version

from pyinfra_gpu.drift.driver_archive import archive
from pyinfra_gpu.drift.kernels import kernels, next_kernel
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.packages.names import driver_version, is_driver, plain
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import NvidiaPackage, Record
    from pyinfra_gpu.spec import HostSpec, Modules

_KINDS: tuple[Literal["compute", "full"], ...] = ("compute", "full")
_FLAVOURS: dict[Modules, tuple[Modules, Modules]] = {
    "open": ("open", "proprietary"),
    "proprietary": ("proprietary", "open"),
}


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
    driver, own = spec.driver, archive(spec, record)
    wanted: tuple[str, ...] = ()
    other: frozenset[str] = frozenset()
    modules: set[str] = set()
    if driver.branch is not None:
        wanted = _declared(spec, record, driver.modules, driver.packages)
        flavours = _FLAVOURS[driver.modules]
        mine, theirs = (_of_kernels(spec, record, flavour) for flavour in flavours)
        modules = {*mine, *theirs, *of_series(spec, record)}
        named, others = (
            {name for kind in _KINDS for name in _declared(spec, record, flavour, kind)}
            for flavour in flavours
        )
        wanted, other = (*wanted, *mine), frozenset((others - named) | set(theirs))
    apart = frozenset(own.apart if own else ()) | modules
    rows = record.nvidia.packages
    installed = () if isinstance(rows, Unknown) else rows
    return Packages(
        wanted=wanted,
        other=other,
        installed=tuple(
            each
            for each in installed
            if plain(each.name) in {*wanted, *other, *modules}
            or (plain(each.name) not in apart and is_driver(each.name, each.version))
        ),
        apart=apart,
    )


def _declared(
    spec: HostSpec, record: Record, modules: Modules, kind: Literal["compute", "full"]
) -> tuple[str, ...]:
    """Return the names of a driver's packages where it comes from; () where none are known."""
    own, branch = archive(spec, record), spec.driver.branch or 0
    if own is not None:
        return own.driver(branch, modules, kind) or ()
    return catalogue().driver_packages(str(record.system.os_id), branch, modules, kind) or ()


def _of_kernels(spec: HostSpec, record: Record, modules: Modules) -> tuple[str, ...]:
    """Return the packages with the distribution's own modules for both kernels, if it has any."""
    own, branch = archive(spec, record), spec.driver.branch or 0
    if own is None:
        return ()
    found = (own.kernel_package(branch, modules, kernel) for kernel in kernels(record))
    return tuple(name for name in found if name)


def of_kernel_alone(spec: HostSpec, record: Record, kernel: str) -> str | None:
    """Return the package with the distribution's own module for one kernel, None = DKMS builds."""
    own = archive(spec, record)
    branch, modules = spec.driver.branch or 0, spec.driver.modules
    return None if own is None else own.kernel_package(branch, modules, kernel)


def of_series(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return the packages that bring such modules together with newer kernels.

    Not among those that are wanted: where the newest kernel is not installed, they would bring it.
    """
    own, branch = archive(spec, record), spec.driver.branch or 0
    if own is None:
        return ()
    newest = next_kernel(record) or ""
    name = own.series_package(branch, spec.driver.modules, newest)
    return () if name is None else (name,)
