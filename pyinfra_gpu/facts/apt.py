"""NVIDIA's packages as dpkg and apt know them: versions, sources, key, and what happened when."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra_gpu.facts import apt_history, apt_sources
from pyinfra_gpu.facts.apt_history import PackageChange
from pyinfra_gpu.facts.apt_sources import AptSource
from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown, not_asked
from pyinfra_gpu.facts.openpgp import fingerprints
from pyinfra_gpu.facts.probe import ConcernFact

__all__ = ["Apt", "AptRecord", "AptSource", "NvidiaPackage", "PackageChange", "parse"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaPackage(Jsonable):
    """One package that is installed, wholly or in part.

    + name: with ":ARCHITECTURE" where that is not the machine's own
    + held: whether apt was told to leave it alone
    + complete: whether dpkg is done with it
    """

    name: str
    version: str
    held: bool
    complete: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class AptRecord(Jsonable):
    """The packages of driver, toolkit and their libraries.

    + packages: those that are installed, by name
    + sources: the enabled ones that name NVIDIA's repository, or the declared one
    + keyring: fingerprints (40 upper-case hexadecimal digits) of the primary keys in the keyring
      file of ours, None if there is no such file
    + history: what apt did to them, to compilers and to kernels, newest last, the last 200
      changes of the last two months or so (apt's log and the one before it)
    """

    packages: tuple[NvidiaPackage, ...] | Unknown
    sources: tuple[AptSource, ...] | Unknown
    keyring: tuple[str, ...] | Unknown | None
    history: tuple[PackageChange, ...] | Unknown

    def package(self, name: str) -> NvidiaPackage | None:
        """The package of that name; None where it is not installed or dpkg would not tell."""
        if isinstance(self.packages, Unknown):
            return None
        return next((package for package in self.packages if package.name == name), None)


class Apt(ConcernFact[AptRecord]):
    """NVIDIA's packages: `pyinfra INVENTORY fact pyinfra_gpu.facts.apt.Apt`."""

    def read(self, fields: Fields) -> AptRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> AptRecord:
    """The packages, from the probe's fields."""
    if not_asked(fields):
        return AptRecord(packages=(), sources=(), keyring=None, history=())
    key = fields.raw("apt.keyring")
    return AptRecord(
        packages=_packages(fields.items("apt.package")),
        sources=apt_sources.parse(fields),
        keyring=fingerprints(key) if isinstance(key, bytes) else key,
        history=apt_history.parse(fields.items("apt.change")),
    )


def _packages(rows: tuple[str, ...] | Unknown) -> tuple[NvidiaPackage, ...] | Unknown:
    """Rows "NAME VERSION HELD COMPLETE", the last two as 0 or 1."""
    if isinstance(rows, Unknown):
        return rows
    packages = []
    for row in rows:
        words = row.split(" ")
        if len(words) != 4 or not {words[2], words[3]} <= {"0", "1"}:
            return Unknown(f"the probe's line {row[:80]!r} is incomplete")
        packages.append(
            NvidiaPackage(
                name=words[0], version=words[1], held=words[2] == "1", complete=words[3] == "1"
            )
        )
    return tuple(sorted(packages, key=lambda package: package.name))
