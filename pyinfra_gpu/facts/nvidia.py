"""NVIDIA's packages as the package manager knows them: versions, sources, key, what happened."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown, without_password
from pyinfra_gpu.facts.openpgp import fingerprints
from pyinfra_gpu.facts.probe import ConcernFact
from pyinfra_gpu.packages import PackageManager, manager_for
from pyinfra_gpu.packages.model import PackageChange, Source

_NVIDIA = ("nvidia", "cuda/repos")
_STATES = {
    "gone": "is gone",
    "changed": "was changed",
    "linked": "is a link to another file",
    "closed": "is not open to everybody",
    "emptied": "is empty or gone",
}
_STATE = f"^({'|'.join(_STATES)})$"


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
    state: Annotated[str, Field(pattern=_STATE)]

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

    def read(self, answer: Answer) -> NvidiaRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> NvidiaRecord:
    """Return this concern, of what a host answered."""
    manager = manager_for(answer.value(str | None, "system.os_id"))
    key, listed = answer.value(str | None, "nvidia.keyring"), all_sources(answer, manager)
    if isinstance(listed, Unknown):
        archives: tuple[Source, ...] | Unknown = listed
    else:
        archives = tuple(each for each in listed if each.components)
    return answer.part(
        NvidiaRecord,
        "nvidia",
        sources=sources(answer, manager),
        archives=archives,
        keyring=_fingerprints(key) if isinstance(key, str) else key,
        history=history(answer.value(tuple[str, ...], "nvidia.changes"), manager),
    )


def _fingerprints(digits: str) -> tuple[str, ...] | Unknown:
    try:
        return fingerprints(bytes.fromhex(digits))
    except ValueError:
        return Unknown("it is not a readable keyring")


def sources(answer: Answer, manager: PackageManager) -> tuple[Source, ...] | Unknown:
    """Return the sources that name NVIDIA's repository or are the declared one.

    In the declared URL, which the probe tells too, `{distro}` and `{arch}` stand for any word.
    """
    listed = all_sources(answer, manager)
    declared = answer.value(str | None, "nvidia.repository")
    if isinstance(listed, Unknown):
        return listed
    if isinstance(declared, Unknown):
        return declared
    return tuple(each for each in listed if _matters(each, declared))


def all_sources(answer: Answer, manager: PackageManager) -> tuple[Source, ...] | Unknown:
    """Return every enabled source; the probe tells each line of the lists as "FILE:LINE"."""
    rows = answer.value(tuple[str, ...], "nvidia.source_lines")
    if isinstance(rows, Unknown):
        return rows
    files: dict[str, list[str]] = {}
    for name, _, line in (row.partition(":") for row in rows):
        files.setdefault(name, []).append(line)
    return tuple(
        source for name, lines in files.items() for source in manager.sources_in(name, lines)
    )


def _matters(source: Source, declared: str | None) -> bool:
    text = f"{source.file.rpartition('/')[2]} {source.uri}".lower()
    if any(word in text for word in _NVIDIA):
        return True
    if not declared:
        return False
    parts = re.split(r"\{distro\}|\{arch\}", declared.rstrip("/"))
    return re.fullmatch("[^/]+".join(map(re.escape, parts)), source.uri.rstrip("/")) is not None


def history(
    rows: tuple[str, ...] | Unknown, manager: PackageManager
) -> tuple[PackageChange, ...] | Unknown:
    """Return what the package manager's log tells, oldest first, without passwords."""
    if isinstance(rows, Unknown):
        return rows
    return tuple(
        replace(change, command=without_password(change.command)) if change.command else change
        for change in manager.changes_in(rows)
    )
