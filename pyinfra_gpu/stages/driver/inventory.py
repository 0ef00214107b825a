"""The driver on one host: where it comes from, for which kernels, of which packages it is made."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from packaging.version import Version

from pyinfra_gpu.facts.record import NvidiaPackage, Record
from pyinfra_gpu.packages.names import LIBRARIES, branch_of, driver_version, is_driver, plain
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stacks import Archive, Extent, Flavour, catalogue
from pyinfra_gpu.stages.rules import if_known

EXTENTS: tuple[Extent, ...] = ("compute", "full")


def of_gpus(spec: HostSpec) -> bool:
    """Tell whether a host is to work with GPUs."""
    return spec.accelerator == "nvidia"


def ours(spec: HostSpec) -> bool:
    """Tell whether the driver is ours to keep on this host."""
    return of_gpus(spec) and spec.driver.source != "present"


def from_nvidia(spec: HostSpec) -> bool:
    """Tell whether the driver comes from NVIDIA's repository, and not from Ubuntu's archive."""
    return spec.driver.source == "nvidia"


def trusts_nvidia(spec: HostSpec) -> bool:
    """Tell whether NVIDIA's repository is needed: for the driver, or else for the toolkit."""
    return ours(spec) and (from_nvidia(spec) or spec.cuda.toolkit)


class Repository(NamedTuple):
    """The declared repository, for one host; no slash at the URL's end, digits in one case."""

    url: str
    key_fingerprint: str
    keyring_sha256: str


def repository(spec: HostSpec, record: Record) -> Repository | str:
    """Return the repository of this host's own release, or why there is none, as a clause.

    Another release's repository is no way out: a newer package manager refuses keys that older
    ones use.
    """
    declared, system = spec.driver.repository, record.system
    if declared is None:
        return "no repository is declared"
    release = catalogue().repository(str(system.os_id), str(system.os_version))
    arch = catalogue().repository_arch(str(system.architecture))
    if "{distro}" in declared.url and release is None:
        return f"NVIDIA's repository for {system.os_name} is not known: declare its whole URL"
    if "{arch}" in declared.url and arch is None:
        return f"NVIDIA has no repository for machines of kind {system.architecture}"
    fingerprint = declared.key_fingerprint or (release and release.key_fingerprint)
    digest = declared.keyring_sha256 or (release and release.keyring_sha256)
    if not fingerprint or not digest:
        return "declare `driver_key_fingerprint` and `driver_keyring_sha256` of that repository"
    url = declared.url_for(release.distro if release else "", arch or "")
    return Repository(url, fingerprint.upper(), digest.lower())


def archive(spec: HostSpec, record: Record) -> Archive | None:
    """Return what is known of the archive that the driver, with signed modules, comes from.

    None where it comes from NVIDIA, whose modules DKMS builds, or where no archive is known.
    """
    if from_nvidia(spec) or not ours(spec):
        return None
    return catalogue().archives.get(str(record.system.os_id))


def kernels(record: Record) -> tuple[str, ...]:
    """Return the running kernel and, where it is another, the one that the next boot takes."""
    both = (if_known(record.system.kernel, None), record.kernel.newest)
    return tuple(dict.fromkeys(name for name in both if name))


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
    apart: frozenset[str]

    @property
    def names(self) -> dict[str, str]:
        """Name -> version of what is installed."""
        return {package.name: package.version for package in self.installed}

    @property
    def following(self) -> tuple[NvidiaPackage, ...]:
        """The installed packages that have the driver's version, or ought to."""
        return tuple(each for each in self.installed if plain(each.name) not in self.apart)

    @property
    def version(self) -> str | None:
        """The one driver version that is there; None where there is none, or several are."""
        found = {driver_version(package.version) for package in self.following} - {None}
        return found.pop() if len(found) == 1 else None

    @property
    def telling(self) -> tuple[str, ...]:
        """The names of what the driver is made of, those with its libraries first.

        By their names alone, NVIDIA's container tools or its settings would pass for the driver.
        """
        return (*LIBRARIES, *self.wanted, *self.names)


def packages(spec: HostSpec, record: Record) -> Packages:
    """Sort the installed packages; one that is not told is as if it were not there."""
    own, driver, kernels_ = archive(spec, record), spec.driver, kernels(record)
    branch, mine = driver.branch or 0, driver.modules
    other: Flavour = "proprietary" if mine == "open" else "open"
    known = catalogue().distributions if from_nvidia(spec) else {}
    source = own or known.get(str(record.system.os_id))

    def named(flavour: Flavour, *extents: Extent) -> list[str]:
        found = (source.driver(branch, flavour, each) or () for each in extents if source)
        return [name for names in found for name in names]

    def for_kernels(flavour: Flavour) -> list[str]:
        return [own.kernel_package(branch, flavour, kernel) for kernel in kernels_] if own else []

    wanted = [*named(mine, driver.packages), *for_kernels(mine)]
    others = {*named(other, *EXTENTS)} - {*named(mine, *EXTENTS)} | {*for_kernels(other)}
    of_kernels = {*for_kernels(mine), *for_kernels(other), *of_series(spec, record)}
    apart = of_kernels | {*(own.apart if own else ())}
    certain = {*wanted, *others, *of_kernels}
    installed = tuple(
        each
        for each in if_known(record.nvidia.packages, ())
        if plain(each.name) in certain
        or (plain(each.name) not in apart and is_driver(each.name, each.version))
    )
    return Packages(
        wanted=tuple(wanted), other=frozenset(others), installed=installed, apart=frozenset(apart)
    )


def of_series(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return the packages that bring an archive's modules together with newer kernels.

    Not among those that are wanted: where the newest kernel is not installed, they would bring it.
    """
    own, driver = archive(spec, record), spec.driver
    named = (
        own.series_package(driver.branch or 0, driver.modules, newest)
        for newest in kernels(record)[-1:]
        if own
    )
    return tuple(filter(None, named))


def target(spec: HostSpec, found: Packages) -> str | None:
    """Return the one version that all packages must have, None = the newest of the branch.

    Where none is declared that is the version of most of the declared packages that are there, as
    long as it will do: companions alone are no driver to keep to.
    """
    if spec.driver.version is not None:
        return spec.driver.version
    there = [driver_version(each.version) for each in found.following if each.name in found.wanted]
    votes = Counter(each for each in there if each and will_do(spec, each))
    return max(votes, key=lambda each: (votes[each], Version(each)), default=None)


def will_do(spec: HostSpec, version: str) -> bool:
    """Tell whether a driver is of the declared branch and not older than the stack needs."""
    oldest = spec.driver.minimum or "0"
    return branch_of(version) == spec.driver.branch and Version(version) >= Version(oldest)
