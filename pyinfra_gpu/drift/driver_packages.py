"""Are the driver's packages the declared ones, complete, of one version? Judged, never touched."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from packaging.version import Version

from pyinfra_gpu.drift.driver_inventory import (
    Packages,
    archive,
    of_ours,
    packages,
    without_headers,
)
from pyinfra_gpu.drift.finding import CannotTell, Finding, Id, repair
from pyinfra_gpu.drift.lost_files import lost_files, packages_of, told
from pyinfra_gpu.drift.rules import known
from pyinfra_gpu.packages.names import LIBRARIES, branch_of, driver_version
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec


def target(spec: HostSpec, found: Packages) -> str | None:
    """Return the one version that all packages must have, None = the newest of the branch.

    Where none is declared that is the version of most of the declared packages that are there,
    then of most packages, as long as it is of the declared branch and not too old.
    """
    driver = spec.driver
    if driver.version is not None:
        return driver.version
    if set(found.missing) == set(found.wanted):
        return None  # what is there are companions, and no driver to keep to
    counted: Counter[str] = Counter()
    for package in found.following:
        version = driver_version(package.version)
        if version is None or branch_of(version) != driver.branch or too_old(spec, version):
            continue
        counted[version] += 1000 if package.name in found.wanted else 1
    if not counted:
        return None
    return max(counted, key=lambda version: (counted[version], Version(version)))


def too_old(spec: HostSpec, version: str) -> bool:
    """Tell whether a driver is older than what the stack needs."""
    return spec.driver.minimum is not None and Version(version) < Version(spec.driver.minimum)


MOVES = (Id.DRIVER_NOT_INSTALLED, Id.DRIVER_VERSION_DIFFERS)
INSTALL = (*MOVES, Id.DRIVER_FILES_DAMAGED, Id.DRIVER_HEADERS_MISSING)
"""What `driver.installed` repairs."""


def driver_names(found: Packages) -> tuple[str, ...]:
    """Name the packages that the driver is made of, those with its libraries first.

    By their names alone, NVIDIA's container tools or its settings would pass for the driver.
    """
    return (*LIBRARIES, *found.wanted, *(package.name for package in found.installed))


@of_ours
def _known(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Ask for what has to be known before anything is installed."""
    kernel = record.kernel
    installed = (record.nvidia.packages, record.packages.half_configured)
    for each in (*installed, kernel.headers, kernel.installed, record.system.kernel):
        known(each)
    if not packages(spec, record).wanted:
        raise CannotTell(
            f"no packages are known for driver branch {spec.driver.branch} with"
            f" {spec.driver.modules} modules on {record.system.os_name}: install it yourself and"
            " declare `driver_source = 'present'`"
        )
    yield from ()


@of_ours
def _missing(spec: HostSpec, record: Record) -> Iterator[Finding]:
    found = _installed(spec, record)
    if found.foreign:
        yield repair(
            Id.DRIVER_NOT_INSTALLED,
            f"{', '.join(found.foreign)} installed",
            f"the {spec.driver.modules} kernel modules",
            f"install {', '.join(found.wanted)} instead",
            (*found.foreign, *found.wanted),
        )
    elif found.missing:
        names = ", ".join(found.missing)
        wanted = spec.driver.version or f"of branch {spec.driver.branch}"
        yield repair(
            Id.DRIVER_NOT_INSTALLED,
            f"{names} not installed" if found.versions else "no driver installed",
            f"driver {wanted} with {spec.driver.modules} kernel modules",
            f"install {names}",
            found.missing,
        )


@of_ours
def _version(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """At most one of: another branch, mixed, too old or not the declared version."""
    found, branch = _installed(spec, record), spec.driver.branch
    versions, wanted, named = found.versions, target(spec, found), driver_names(found)
    if moved := [each for each in versions if branch_of(each) != branch]:
        action = f"install branch {branch}"
        was, expected = f"driver {', '.join(moved)}", f"branch {branch}"
        yield repair(Id.DRIVER_VERSION_DIFFERS, was, expected, action, named)
    elif len(versions) > 1:
        most = wanted or "the newest of the branch"
        each_version = {each.name: driver_version(each.version) for each in found.following}
        odd = {name: version for name, version in each_version.items() if version != wanted}
        yield repair(
            Id.DRIVER_VERSION_DIFFERS,
            some([f"{name} {version}" for name, version in odd.items()], 3),
            f"all of the driver to be {most}",
            f"bring all of the driver to {most}",
            (*[*odd][:3], *named),
        )
    elif versions and versions[0] != wanted:
        goal = f"driver {wanted or f'{spec.driver.minimum} or newer'}"
        was = f"driver {versions[0]}"
        yield repair(Id.DRIVER_VERSION_DIFFERS, was, goal, f"install {goal}", named)


@of_ours
def _incomplete(spec: HostSpec, record: Record) -> Iterator[Finding]:
    found = _installed(spec, record)
    if half := tuple(each.name for each in found.installed if not each.complete):
        was, expected = f"{', '.join(half)} only partly installed", "whole packages"
        action = "finish their installation"
        yield repair(Id.DRIVER_FILES_DAMAGED, was, expected, action, half)


@of_ours
def _headers(spec: HostSpec, record: Record) -> Iterator[Finding]:
    lacking = () if archive(spec, record) else without_headers(record)
    if lacking:
        yield repair(
            Id.DRIVER_HEADERS_MISSING,
            f"no headers for kernel {', '.join(lacking)}",
            "headers, to build the driver's module with",
            "install them",
            tuple(f"linux-headers-{kernel}" for kernel in lacking),
        )


@of_ours
def _files(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what packages of one version cannot explain; mixed versions are told as that."""
    found = _installed(spec, record)
    if wrong := foreign_libraries(record, found):
        yield repair(
            Id.DRIVER_FILES_DAMAGED,
            " and ".join(wrong),
            f"the libraries of driver {found.versions[0]}",
            "keep what no package brought under another name, and install the libraries'"
            " packages again",
            LIBRARIES,
        )
    if lost := lost_files(record, found.names.__contains__):
        names = tuple(packages_of(lost))
        yield repair(
            Id.DRIVER_FILES_DAMAGED,
            told(lost),
            "every file of the driver's packages as they brought it",
            f"install {', '.join(names)} again",
            names,
        )


def _installed(spec: HostSpec, record: Record) -> Packages:
    known(record.nvidia.packages)
    return packages(spec, record)


RULES = (_known, _missing, _version, _incomplete, _headers, _files)


_LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{3}\.\d{2,3}(?:\.\d{2})?)")


def library_version(path: object) -> str | None:
    """Return the driver's version in a library's file name, None where it has none."""
    match = _LIBRARY.search(path) if isinstance(path, str) else None
    return match[1] if match and isinstance(path, str) and path.endswith(match[1]) else None


def foreign_libraries(record: Record, found: Packages) -> list[str]:
    """Return the libraries that programs load, and that are not of the driver's one version."""
    if len(found.versions) != 1:
        return []
    paths = (record.driver.libcuda, record.driver.libml)
    return [str(p) for p in paths if library_version(p) not in (None, found.versions[0])]
