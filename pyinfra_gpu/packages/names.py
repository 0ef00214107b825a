"""NVIDIA's packages by their names and versions, and patterns of names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from pyinfra_gpu.on_host.probe.apt import is_nvidia as is_nvidia

LABEL = "NVIDIA CUDA"
"""What NVIDIA's repository calls itself in its own index; a mirror has to keep it."""

LIBRARIES = ("libcuda1", "libnvidia-ml1", "libnvidia-compute*")
"""The packages that hold the driver's own libraries, the most telling first."""

SHARED = ("nvidia-kernel-common",)
"""Names that a distribution has for a helper and NVIDIA, from branch 590 on, for a part of the
driver: what tells them apart is that a driver's version is one."""

# Three digits, then one or two groups: 580.95.05 and 580.142 are drivers, 13.0.3 and 1.18.0 not.
_VERSION = re.compile(r"(?:\d+:)?(?P<driver>[1-9]\d\d\.\d{2,3}(?:\.\d{2})?)(?:[-+~].*)?", re.ASCII)
_OF_ONE_VERSION = re.compile(r".*-\d{3}\.\d{2,3}(\.\d{2})?")
_KERNEL = re.compile(
    r"(linux-image|linux-modules|linux-generic|linux-virtual|linux-signed).*|linux-(amd64|arm64)"
)


def plain(name: str) -> str:
    """Return a package's name without its architecture."""
    return name.partition(":")[0]


@lru_cache(4096)
def is_driver(name: str, version: str) -> bool:
    """Tell whether a package is part of the driver: named as one, with a driver's version.

    The name alone would catch NVIDIA's container tools, the version alone anything.
    cuda-compat carries a driver's version and is a part of the toolkit. A package with a version
    in its name (nvidia-firmware-580-580.95.05) never moves: the next version brings another one.
    """
    name = plain(name)
    apart = name.startswith("cuda-compat") or _OF_ONE_VERSION.fullmatch(name)
    return not apart and is_nvidia(name) and driver_version(version) is not None


def is_kernel(name: str) -> bool:
    """Tell whether a package is a kernel, or pulls one; NVIDIA's modules for one are not."""
    name = plain(name)
    return _KERNEL.fullmatch(name) is not None and not is_nvidia(name)


def of_kernel(kernel: object) -> tuple[str, ...]:
    """Name the packages that one kernel consists of, the most telling first.

    + kernel: its release, "6.1.0-30-amd64"
    """
    kinds = ("linux-image-{}", "linux-image-unsigned-{}", "linux-modules-{}", "linux-headers-{}")
    return tuple(kind.format(kernel) for kind in kinds)


@lru_cache(4096)
def driver_version(version: str) -> str | None:
    """Return the driver's version in a package's ("580.95.05" in "580.95.05-0ubuntu1"), or None.

    The other parts of NVIDIA's repository (toolkit, container tools, cuDNN) count otherwise.
    """
    match = _VERSION.fullmatch(version)
    return match["driver"] if match else None


def branch_of(version: str) -> int | None:
    """Return the branch of a driver's or a driver package's version, or None."""
    driver = driver_version(version)
    return int(driver.partition(".")[0]) if driver else None


def rank(name: str, patterns: Sequence[str]) -> int | None:
    """Return the place of the first pattern (a glob) that a package's name matches, or None."""
    places = (at for at, each in enumerate(patterns) if fnmatchcase(plain(name), each))
    return next(places, None)


def matching(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that match a pattern (a glob), in the order of the patterns."""
    ranked = [(place, name) for name in names if (place := rank(name, patterns)) is not None]
    return [name for _, name in sorted(ranked, key=lambda each: each[0])]
