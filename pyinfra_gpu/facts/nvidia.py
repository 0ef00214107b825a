"""NVIDIA's packages as the package manager knows them: versions, sources, key, what happened."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown, not_asked, without_password
from pyinfra_gpu.facts.openpgp import fingerprints
from pyinfra_gpu.facts.probe import ConcernFact
from pyinfra_gpu.packages import history as apt_log
from pyinfra_gpu.packages import sources as apt_lists
from pyinfra_gpu.packages.model import PackageChange, Source

_NVIDIA = ("nvidia", "cuda/repos")
_STATES = {
    "gone": "is gone",
    "changed": "was changed",
    "linked": "is a link to another file",
    "closed": "is not open to everybody",
    "emptied": "is empty or gone",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaPackage(Jsonable):
    """One package that is installed, wholly or in part.

    + name: with ":ARCHITECTURE" where that is not the machine's own
    + held: whether the package manager was told to leave it alone
    + complete: whether the package manager is done with it
    """

    name: str
    version: str
    held: bool
    complete: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class LostFile(Jsonable):
    """A file that a package brought, or the package manager's list of them, and what became of it.

    + package: with ":ARCHITECTURE" where that is not the machine's own
    + state: "gone"; "changed": it has another content; "linked": a link to another file stands in
      its place; "closed": not everybody may read it, or run it; "emptied", of such a list
    """

    package: str
    path: str
    state: str

    def __str__(self) -> str:
        return f"{self.path} of {self.package} {_STATES[self.state]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternative(Jsonable):
    """A group of update-alternatives.

    + name: "glx"; auto: whether the package manager chooses; leads_to: the path that is chosen,
      None where the link is gone
    + broken: the first of its links that does not lead where that choice says, None if all do
    """

    name: str
    auto: bool
    leads_to: str | None
    broken: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaRecord(Jsonable):
    """The packages of driver, toolkit and their libraries.

    + packages: those that are installed, by name
    + sources: the enabled ones that name NVIDIA's repository, or the declared one
    + archives: the enabled ones with components, as the distribution's own archive has them
    + keyring: fingerprints (40 upper-case hexadecimal digits) of the primary keys in the keyring
      file of ours, None if there is no such file
    + history: what the package manager did to them, to compilers and to kernels, newest last, the
      last 200 changes of the last two months or so (its log and the one before it); a password in
      an address of a command line shows as ***
    + lost: what packages of the driver and the declared toolkit brought and is no longer so, at
      most 50 files; configuration and documentation are not looked at
    + alternatives: the groups "nvidia" and "glx", by which a distribution's own packages lead to
      one driver of several
    """

    packages: tuple[NvidiaPackage, ...] | Unknown
    sources: tuple[Source, ...] | Unknown
    archives: tuple[Source, ...] | Unknown
    keyring: tuple[str, ...] | Unknown | None
    history: tuple[PackageChange, ...] | Unknown
    lost: tuple[LostFile, ...] | Unknown
    alternatives: tuple[Alternative, ...] | Unknown

    def package(self, name: str) -> NvidiaPackage | None:
        """The package of that name; None where it is not installed or not told."""
        if isinstance(self.packages, Unknown):
            return None
        return next((package for package in self.packages if package.name == name), None)


class Nvidia(ConcernFact[NvidiaRecord]):
    """NVIDIA's packages: `pyinfra INVENTORY fact pyinfra_gpu.facts.nvidia.Nvidia`."""

    def read(self, fields: Fields) -> NvidiaRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> NvidiaRecord:
    """The packages, from the probe's fields."""
    if not_asked(fields):
        return NvidiaRecord(
            packages=(),
            sources=(),
            archives=(),
            keyring=None,
            history=(),
            lost=(),
            alternatives=(),
        )
    key, listed = fields.raw("nvidia.keyring"), all_sources(fields)
    return NvidiaRecord(
        packages=_packages(fields.items("nvidia.package")),
        sources=sources(fields),
        archives=listed
        if isinstance(listed, Unknown)
        else tuple(each for each in listed if each.components),
        keyring=fingerprints(key) if isinstance(key, bytes) else key,
        history=history(fields.items("nvidia.change")),
        lost=_lost(fields.items("nvidia.file")),
        alternatives=_alternatives(fields.items("nvidia.alternative")),
    )


def sources(fields: Fields) -> tuple[Source, ...] | Unknown:
    """Return the sources that name NVIDIA's repository or are the declared one.

    In the declared URL, which the probe sends too, `{distro}` and `{arch}` stand for any word.
    """
    listed = all_sources(fields)
    declared = fields.text("nvidia.repository")
    if isinstance(listed, Unknown):
        return listed
    if isinstance(declared, Unknown):
        return declared
    return tuple(each for each in listed if _matters(each, declared))


def all_sources(fields: Fields) -> tuple[Source, ...] | Unknown:
    """Return every enabled source; the probe sends each line of the lists as "FILE:LINE"."""
    rows = fields.items("nvidia.source_line")
    if isinstance(rows, Unknown):
        return rows
    files: dict[str, list[str]] = {}
    for row in rows:
        name, colon, line = row.partition(":")
        if not colon:
            return Unknown(f"the probe's line {row[:80]!r} is incomplete")
        files.setdefault(name, []).append(line)
    return tuple(source for name, lines in files.items() for source in apt_lists.read(name, lines))


def _matters(source: Source, declared: str | None) -> bool:
    text = f"{source.file.rpartition('/')[2]} {source.uri}".lower()
    if any(word in text for word in _NVIDIA):
        return True
    if not declared:
        return False
    parts = re.split(r"\{distro\}|\{arch\}", declared.rstrip("/"))
    return re.fullmatch("[^/]+".join(map(re.escape, parts)), source.uri.rstrip("/")) is not None


def history(rows: tuple[str, ...] | Unknown) -> tuple[PackageChange, ...] | Unknown:
    """Return what the package manager's log tells, oldest first, without passwords."""
    if isinstance(rows, Unknown):
        return rows
    return tuple(
        replace(change, command=without_password(change.command)) if change.command else change
        for change in apt_log.read(rows)
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


def _lost(rows: tuple[str, ...] | Unknown) -> tuple[LostFile, ...] | Unknown:
    """Rows "NAME STATE PATH", in no order."""
    if isinstance(rows, Unknown):
        return rows
    found = [row.split(" ", 2) for row in rows]
    if wrong := next((row for row in found if len(row) != 3 or row[1] not in _STATES), None):
        return Unknown(f"the probe's line {' '.join(wrong)[:80]!r} is incomplete")
    return tuple(
        LostFile(package=name, path=path, state=state) for name, state, path in sorted(found)
    )


def _alternatives(rows: tuple[str, ...] | Unknown) -> tuple[Alternative, ...] | Unknown:
    """Rows "NAME MODE CHOICE BROKEN", where "-" stands for none."""
    if isinstance(rows, Unknown):
        return rows
    found = []
    for row in rows:
        words = row.split(" ")
        if len(words) != 4 or words[1] not in ("auto", "manual"):
            return Unknown(f"the probe's line {row[:80]!r} is incomplete")
        choice, broken = (None if word == "-" else word for word in words[2:])
        found.append(
            Alternative(name=words[0], auto=words[1] == "auto", leads_to=choice, broken=broken)
        )
    return tuple(found)
