"""The driver's library libcuda, as the linker cache and the file system show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown, not_asked
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

    def read(self, fields: Fields) -> LibcudaRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> LibcudaRecord:
    """The library, from the probe's fields."""
    if not_asked(fields):
        return LibcudaRecord(libdir="", cache=(), links={}, files=(), loader_paths=(), proof=None)
    libdir = fields.present("libcuda.libdir")
    unknown = libdir if isinstance(libdir, Unknown) else None
    return LibcudaRecord(
        libdir="" if isinstance(libdir, Unknown) else libdir,
        cache=unknown or _cache(fields.items("libcuda.cache")),
        links=unknown or _links(fields.items("libcuda.link")),
        files=unknown or fields.items("libcuda.file"),
        loader_paths=fields.items("libcuda.loader_path"),
        proof=fields.document("libcuda.proof"),
    )


def _cache(rows: tuple[str, ...] | Unknown) -> tuple[CacheEntry, ...] | Unknown:
    """Rows "NAME => PATH => REAL"; REAL is "-" where there is no file."""
    if isinstance(rows, Unknown):
        return rows
    entries = []
    for row in rows:
        words = row.split(" => ")
        if len(words) != 3:
            return Unknown(f"the probe's line {row[:80]!r} is incomplete")
        entries.append(CacheEntry(name=words[0], path=words[1], real=_or_none(words[2])))
    return tuple(entries)


def _links(rows: tuple[str, ...] | Unknown) -> Mapping[str, Link] | Unknown:
    """Rows "KIND PATH => TARGET => REAL"; "-" stands for no target and no file."""
    if isinstance(rows, Unknown):
        return rows
    links = {}
    for row in rows:
        kind, _, rest = row.partition(" ")
        words = rest.split(" => ")
        if len(words) != 3 or kind not in (*get_args(LinkKind), "hidden"):
            return Unknown(f"the probe's line {row[:80]!r} is incomplete")
        if kind == "hidden":
            return Unknown(f"no permission to look at {words[0]}")
        links[words[0]] = Link(
            kind=cast(LinkKind, kind), target=_or_none(words[1]), real=_or_none(words[2])
        )
    return links


def _or_none(word: str) -> str | None:
    return None if word == "-" else word
