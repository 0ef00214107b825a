"""The driver's library libcuda, as the linker cache and the file system show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact

LinkKind = Literal["link", "file", "dir", "other", "absent"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheEntry(Jsonable):
    """A line of `ldconfig -p` for this machine's architecture.

    + name: e.g. "libcuda.so.1"; path: where the cache says it is
    + real: the file behind it, None where there is none
    """

    name: str
    path: str
    real: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Link(Jsonable):
    """What stands at a path.

    + target: the text of a link; real: the file it finally leads to, None where it dangles
    """

    kind: LinkKind
    target: str | None
    real: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LibcudaRecord(Jsonable):
    """The library.

    + libdir: where this machine's packages put libraries, e.g. "/usr/lib/x86_64-linux-gnu"; empty
      where the architecture is not known, and then all else about it is `Unknown`
    + cache: entries of libcuda.so.1, libcuda.so and libnvidia-ml.so.1 in the cache's order
    + links: what stands at libdir's libcuda.so, libcuda.so.1 and libnvidia-ml.so.1, and at the
      declared toolkit's lib64/libcuda.so
    + files: the regular files libdir/libcuda.so.*
    + loader_paths: folders that the loader is told to search and that hold a toolkit's stubs or
      compat libraries, as "FILE: FOLDER"
    + proof: raw text of what the last proof of the library left
    """

    libdir: str
    cache: tuple[CacheEntry, ...] | Unknown
    links: Mapping[str, Link] | Unknown
    files: tuple[str, ...] | Unknown
    loader_paths: tuple[str, ...] | Unknown
    proof: str | Unknown | None


class Libcuda(ConcernFact[LibcudaRecord]):
    """libcuda: `pyinfra INVENTORY fact pyinfra_gpu.facts.libcuda.Libcuda`."""

    def read(self, answer: Answer) -> LibcudaRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> LibcudaRecord:
    """Return this concern, of what a host answered."""
    libdir = answer.value(str, "libcuda.libdir")
    if not isinstance(libdir, Unknown):
        return answer.part(LibcudaRecord, "libcuda", libdir=libdir)
    known = dict.fromkeys(("cache", "links", "files"), libdir)
    return answer.part(LibcudaRecord, "libcuda", libdir="", **known)
