"""Where the driver's libraries are on a host, and which files are the driver's own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.rules import if_known
from pyinfra_gpu.facts.record import Link
from pyinfra_gpu.packages.names import LIBRARIES, matching

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record

SONAME = "libcuda.so.1"
DEV = "libcuda.so"
ML = "libnvidia-ml.so.1"


def path(record: Record, name: str) -> str:
    """Return where a library's link belongs on this host."""
    return f"{record.libcuda.libdir}/{name}"


def link(record: Record, where: str) -> Link:
    """Return what stands at a path; nothing where it was not looked at."""
    absent = Link(kind="absent", target=None, real=None)
    return if_known(record.libcuda.links, {}).get(where, absent)


def has_driver(record: Record) -> bool:
    """Tell whether a driver's library, or a package that brings it, is on the host."""
    return bool(driver_files(record)) or bool(library_packages(record))


def driver_files(record: Record) -> tuple[str, ...]:
    """Return the driver's libcuda files: where packages put libraries, named by a version.

    Some distributions' own packages keep them one folder deeper, below nvidia/, and link to them.
    """
    candidates = [*if_known(record.libcuda.files, ()), str(link(record, path(record, SONAME)).real)]
    return tuple(dict.fromkeys(each for each in candidates if is_drivers(record, each)))


def is_drivers(record: Record, file: str | None) -> bool:
    """Tell whether a file is where the driver's packages put it, and named as they name it."""
    libdir = record.libcuda.libdir
    if file is None or not libdir:
        return False
    place = rf"{re.escape(libdir)}/(nvidia/([^/]+/)?)?"
    return re.fullmatch(rf"{place}lib(cuda|nvidia-ml)\.so\.\d{{3}}(\.\d+)+", file) is not None


def library_packages(record: Record) -> list[str]:
    """Return the installed packages that bring the driver's libraries, the most telling first."""
    return matching((each.name for each in if_known(record.nvidia.packages, ())), LIBRARIES)


def version_of(file: str | None) -> str | None:
    """Return the version in a library's file name, "580.95.05" of libcuda.so.580.95.05."""
    match = re.search(r"\.so\.(\d+(?:\.\d+)+)$", file or "")
    return match[1] if match else None
