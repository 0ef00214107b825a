"""Files of ours that have to have a content, and files that packages brought."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import LostFile, Record
from pyinfra_gpu.stages.finding import Finding, Id, repair
from pyinfra_gpu.stages.rules import known


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """A file as it should be on a host.

    + path: absolute; its folder exists
    + content: not part of the repr: it may hold what is nobody else's to see
    + mode: four octal digits, e.g. "0644"
    + owner: the user it is given to; None: the user who writes it
    + id: of the finding that it differs; no finding tells it where there is none
    """

    path: str
    content: bytes = field(repr=False)
    mode: str = "0644"
    owner: str | None = None
    id: Id | None = None

    @property
    def name(self) -> str:
        """Its name alone."""
        return self.path.rpartition("/")[2]


def differs(record: Record, file: File) -> tuple[str, str] | None:
    """Return what is there in place of a file, and what is expected; None where it is as it should.

    Raises CannotTell where the host would not tell what is there.
    """
    there, name = known(record.layout.entry(file.path)), file.name
    if there.kind == "absent":
        return f"no {name}", file.path
    if there.kind != "file":
        return f"{name} is a {there.kind}", f"a file at {file.path}"
    if there.sha256 != _digest(file.content):
        return f"{name} differs", f"{file.path} as pyinfra-gpu writes it, and nothing else in it"
    if there.mode != file.mode:
        return f"{name} has mode {there.mode}", f"mode {file.mode}"
    if file.owner is not None and there.owner != file.owner:
        return f"{name} belongs to {there.owner}, not to {file.owner}", f"owner {file.owner}"
    return None


def judge(record: Record, files: Iterable[File]) -> Iterator[Finding]:
    """Find those of our files that are not as they should be."""
    for file in files:
        if file.id and (said := differs(record, file)):
            yield repair(file.id, *said, f"write {file.path}")


@lru_cache(maxsize=64)  # most are the same for every host
def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# -- of packages


def lost_files(record: Record, mine: Callable[[str], bool]) -> tuple[LostFile, ...]:
    """Return those of some packages; an incomplete package has a finding of its own.

    + mine: whether a package is one of those, by its name

    Nor any while somebody installs packages: between an old file and a new one is neither.
    """
    lost, packages = record.nvidia.lost, record.nvidia.packages
    busy = isinstance(record.packages.lock_holder, str)
    if busy or isinstance(lost, Unknown) or isinstance(packages, Unknown):
        return ()
    half = {each.name for each in packages if not each.complete}
    return tuple(each for each in lost if each.package not in half and mine(each.package))
