"""Are the driver's packages the declared ones, complete, of one version? Judged, never touched."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from packaging.version import Version

from pyinfra_gpu.drift.driver_archive import has_prebuilt, ours
from pyinfra_gpu.drift.driver_inventory import Packages, packages
from pyinfra_gpu.drift.driver_repository import (
    as_declared,
    pin_package,
    preferences,
)
from pyinfra_gpu.drift.finding import CannotTell, Finding, Id, Stage
from pyinfra_gpu.drift.kernels import without_headers
from pyinfra_gpu.drift.lost_files import lost_files, packages_of, told
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.packages import files
from pyinfra_gpu.packages.names import LIBRARIES, branch_of, driver_version

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


STAGE = Stage.DRIVER

MOVES = (
    Id.DRIVER_NOT_INSTALLED,
    Id.DRIVER_WRONG_FLAVOUR,
    Id.DRIVER_BRANCH_MOVED,
    Id.DRIVER_VERSION_DIFFERS,
    Id.DRIVER_VERSIONS_MIXED,
)

INSTALL = (
    *MOVES,
    Id.DRIVER_PACKAGE_INCOMPLETE,
    Id.DRIVER_LIBRARIES_DIFFER,
    Id.DRIVER_FILES_DAMAGED,
    Id.DRIVER_HEADERS_MISSING,
)
"""What `driver_packages.installed` repairs."""

PIN = (Id.DRIVER_PIN_PACKAGE_MISSING,)
"""What `driver_packages.pinned` repairs."""


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return the facts that this part of the stage cannot do without."""
    if not ours(spec):
        return ()
    kernel = record.kernel
    installed = (record.nvidia.packages, record.packages.half_configured)
    known = () if packages(spec, record).wanted else (CannotTell(_no_packages(spec, record)),)
    return (*installed, kernel.headers, kernel.installed, record.system.kernel, *known)


def _no_packages(spec: HostSpec, record: Record) -> str:
    return (
        f"no packages are known for driver branch {spec.driver.branch} with"
        f" {spec.driver.modules} modules on {record.system.os_name}: install it yourself and"
        " declare `driver_source = 'present'`"
    )


def summary(spec: HostSpec, record: Record) -> str:
    """Name the installed driver, where nothing differs."""
    if not ours(spec):
        return ""
    return f"driver {', '.join(packages(spec, record).versions)} from packages"


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return what is not as declared of the packages and of what DKMS builds with."""
    if not ours(spec):
        return []
    headers = [] if has_prebuilt(spec, record) else _headers(record)
    if isinstance(record.nvidia.packages, Unknown):
        return headers
    found = packages(spec, record)
    return [
        *_pin_package(spec, record),
        *_missing(spec, found),
        *_flavour(spec, found),
        *_version(spec, found),
        *_incomplete(found),
        *headers,
        *_libraries(record, found),
        *_files(record, found),
    ]


def driver_names(found: Packages) -> tuple[str, ...]:
    """Name the packages that the driver is made of, those with its libraries first.

    By their names alone, NVIDIA's container tools or its settings would pass for the driver.
    """
    return (*LIBRARIES, *found.wanted, *(package.name for package in found.installed))


def _pin_package(spec: HostSpec, record: Record) -> list[Finding]:
    name = pin_package(spec, record)
    package = record.nvidia.package(name) if name else None
    alone = preferences(spec, record, alone=True)
    if name is None or as_declared(record, files.PREFERENCES, alone):
        return []
    if package is not None and package.complete:
        return []
    return [
        Finding(
            id=Id.DRIVER_PIN_PACKAGE_MISSING,
            found=f"{name} is not installed",
            expected="NVIDIA's own pin beside ours",
            effect="repair",
            action=f"install {name}, before the driver",
            packages=(name,),
        )
    ]


def _missing(spec: HostSpec, found: Packages) -> list[Finding]:
    if not found.missing or found.foreign:
        return []
    there = found.versions
    return [
        Finding(
            id=Id.DRIVER_NOT_INSTALLED,
            found=f"{', '.join(found.missing)} not installed" if there else "no driver installed",
            expected=f"driver {_wanted(spec)} with {spec.driver.modules} kernel modules",
            effect="repair",
            action=f"install {', '.join(found.missing)}",
            packages=found.missing,
        )
    ]


def _wanted(spec: HostSpec) -> str:
    return spec.driver.version or f"of branch {spec.driver.branch}"


def _flavour(spec: HostSpec, found: Packages) -> list[Finding]:
    if not found.foreign:
        return []
    return [
        Finding(
            id=Id.DRIVER_WRONG_FLAVOUR,
            found=f"{', '.join(found.foreign)} installed",
            expected=f"the {spec.driver.modules} kernel modules",
            effect="repair",
            action=f"install {', '.join(found.wanted)} instead",
            packages=(*found.foreign, *found.wanted),
        )
    ]


def _version(spec: HostSpec, found: Packages) -> list[Finding]:
    """At most one of: another branch, too old or not the declared version, mixed."""
    versions = found.versions
    if not versions:
        return []
    named = driver_names(found)
    moved = [version for version in versions if branch_of(version) != spec.driver.branch]
    if moved:
        return [
            Finding(
                id=Id.DRIVER_BRANCH_MOVED,
                found=f"driver {', '.join(moved)}",
                expected=f"branch {spec.driver.branch}",
                effect="repair",
                action=f"bring the driver back to branch {spec.driver.branch}",
                packages=named,
            )
        ]
    wanted = target(spec, found)
    if len(versions) > 1:
        return [_mixed(found, wanted, named)]
    if versions[0] == wanted:
        return []
    goal = wanted or f"{spec.driver.minimum} or newer"
    return [
        Finding(
            id=Id.DRIVER_VERSION_DIFFERS,
            found=f"driver {versions[0]}",
            expected=f"driver {goal}",
            effect="repair",
            action=f"install driver {goal}",
            packages=named,
        )
    ]


def _mixed(found: Packages, wanted: str | None, named: tuple[str, ...]) -> Finding:
    most = wanted or "the newest of the branch"
    odd = [
        f"{package.name} {driver_version(package.version)}"
        for package in found.following
        if driver_version(package.version) != wanted
    ]
    return Finding(
        id=Id.DRIVER_VERSIONS_MIXED,
        found=f"{', '.join(odd[:3])}{' and others' if len(odd) > 3 else ''}",
        expected=f"all of the driver to be {most}",
        effect="repair",
        action=f"bring all of the driver to {most}",
        packages=(*(text.partition(" ")[0] for text in odd[:3]), *named),
    )


def _incomplete(found: Packages) -> list[Finding]:
    half = [package.name for package in found.installed if not package.complete]
    if not half:
        return []
    return [
        Finding(
            id=Id.DRIVER_PACKAGE_INCOMPLETE,
            found=f"{', '.join(half)} only partly installed",
            expected="every package completely installed",
            effect="repair",
            action="finish their installation",
            packages=tuple(half),
        )
    ]


_LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{3}\.\d{2,3}(?:\.\d{2})?)")


def library_version(path: str | Unknown | None) -> str | None:
    """Return the driver's version in a library's file name, None where it has none."""
    match = _LIBRARY.search(path) if isinstance(path, str) else None
    return match[1] if match and isinstance(path, str) and path.endswith(match[1]) else None


def _headers(record: Record) -> list[Finding]:
    lacking = without_headers(record)
    if not lacking:
        return []
    return [
        Finding(
            id=Id.DRIVER_HEADERS_MISSING,
            found=f"no headers for kernel {', '.join(lacking)}",
            expected="headers, to build the driver's module with",
            effect="repair",
            action="install them",
            packages=tuple(f"linux-headers-{kernel}" for kernel in lacking),
        )
    ]


def _libraries(record: Record, found: Packages) -> list[Finding]:
    """What packages of one version cannot explain; mixed versions are told as that."""
    wrong = foreign_libraries(record, found)
    if not wrong:
        return []
    version = found.versions[0]
    return [
        Finding(
            id=Id.DRIVER_LIBRARIES_DIFFER,
            found=" and ".join(wrong),
            expected=f"the libraries of driver {version}",
            effect="repair",
            action="keep what no package brought under another name, and install the libraries'"
            " packages again",
            packages=LIBRARIES,
        )
    ]


def _files(record: Record, found: Packages) -> list[Finding]:
    lost = lost_files(record, found.names.__contains__)
    if not lost:
        return []
    names = packages_of(lost)
    return [
        Finding(
            id=Id.DRIVER_FILES_DAMAGED,
            found=told(lost),
            expected="every file of the driver's packages as they brought it",
            effect="repair",
            action=f"install {', '.join(names)} again",
            packages=tuple(names),
        )
    ]


def foreign_libraries(record: Record, found: Packages) -> list[str]:
    """Return the libraries that programs load, and that are not of the driver's one version."""
    if len(found.versions) != 1:
        return []
    paths = (record.driver.libcuda, record.driver.libml)
    return [str(p) for p in paths if library_version(p) not in (None, found.versions[0])]
