"""What stands at the paths that the project cares for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact

Told = Callable[[str], str | Unknown]
"""What the host said of a path."""

_MOST_ARROWS = 8
_LARGEST_READ = 4 << 20  # bytes; of a larger file the probe makes no digest
_HEXADECIMAL = re.compile(r"[0-9a-f]{1,8}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,19}", re.ASCII)

Kind = Literal["file", "dir", "link", "other", "absent"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry(Jsonable):
    """What stands at one path; links are not followed.

    + mode: four octal digits, e.g. "0755"; owner: name, or number where the user has no name
    + sha256: of files up to 4 MiB; size: in bytes, of files; target: where a link points
    """

    kind: Kind
    mode: str | None = None
    owner: str | None = None
    sha256: str | Unknown | None = None
    size: int | None = None
    target: str | Unknown | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutRecord(Jsonable):
    """The paths that were asked for.

    + entries: path -> what stands there; of what the owner can write, as the owner says
    + open: the first place on the way to the prefix that somebody else than root can change; None
      where there is none, or where nothing is done as root
    + owner_problem: why nothing can be looked at as the owner; None where it can, or need not
    """

    entries: Mapping[str, Entry | Unknown] | Unknown
    open: str | Unknown | None = None
    owner_problem: str | Unknown | None = None

    def entry(self, path: str) -> Entry | Unknown:
        """What stands at `path`; unknown if it was not asked for."""
        if isinstance(self.entries, Unknown):
            return self.entries
        return self.entries.get(path, Unknown(f"{path} was not looked at"))


class Layout(ConcernFact[LayoutRecord]):
    """Files and folders: `pyinfra INVENTORY fact pyinfra_gpu.facts.layout.Layout`."""

    def read(self, answer: Answer) -> LayoutRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> LayoutRecord:
    """Return this concern, of what a host answered; what the owner says counts where root said no.

    Root tells in the place of its own which paths are left to the owner.
    """
    form = Mapping[str, Entry | Unknown]
    entries, left = (
        answer.value(form, "layout.entries"),
        answer.value(tuple[str, ...], "layout.left"),
    )
    if not isinstance(entries, Unknown):
        entries = left if isinstance(left, Unknown) else {**entries, **_owners(answer, left)}
    return answer.part(LayoutRecord, "layout", entries=entries)


def _owners(answer: Answer, left: tuple[str, ...]) -> Mapping[str, Entry | Unknown]:
    told = answer.value(Mapping[str, Entry | Unknown], "owned")
    if isinstance(told, Unknown):
        return dict.fromkeys(left, told)
    return {path: told.get(path, Unknown(f"the owner did not tell of {path}")) for path in left}
