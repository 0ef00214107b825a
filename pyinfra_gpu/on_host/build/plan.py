"""What is to be built, as the controller writes it down: FOLDER/plan.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .errors import BuildError
from .files import read_json


@dataclass(frozen=True)
class Plan:
    """One build.

    + fingerprint: of all that is declared for it; another one is another build
    + ingredients: what the fingerprint is made of, by name
    + source: {"git": URL, "commit": 40 digits} or {"url": URL, "sha256": 64 digits}
    + version: that the wheel is to have, e.g. "2.14.1+cu130"
    + settings: CMake's options by name, all that are declared and all that would be found by chance
    + declared: the names of those that data declares; each of them has to have an effect
    + archs: compute capabilities, e.g. ["12.0"]; empty without CUDA
    + cuda: the toolkit's folder, or None
    + nccl: the repository of NCCL, or None for NVIDIA's; cudnn: the folder of the declared cuDNN
    + compiler: C and C++ compiler, or None for the host's own
    + python: the interpreter the wheel is for; uv: the installer; sources: its options for where
      packages come from
    + tools: requirements of the build beside the tree's own, with their versions
    + memory_mib: that the build may use
    + rehearsal: a tree that calls itself a stand-in is allowed
    """

    fingerprint: str
    ingredients: Mapping[str, Any]
    source: Mapping[str, str]
    version: str
    settings: Mapping[str, str]
    declared: tuple[str, ...]
    archs: tuple[str, ...]
    cuda: str | None
    nccl: str | None
    cudnn: str | None
    compiler: tuple[str, str] | None
    python: str
    uv: str
    cache: str
    sources: tuple[str, ...]
    tools: tuple[str, ...]
    memory_mib: int
    rehearsal: bool

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """Return the plan in a folder. Raises BuildError where there is none."""
        return cls.made(read_json(folder / "plan.json"), str(folder))

    @classmethod
    def made(cls, known: Mapping[str, Any], folder: str = "the controller") -> Plan:
        """Return a plan from its document. Raises BuildError where that lacks something.

        + folder: where the document is from
        """
        names = [field.name for field in fields(cls)]
        missing = [name for name in names if name not in known]
        if missing:
            raise BuildError(f"{folder}/plan.json does not say {missing[0]}: run the deploy again")
        values = {name: known[name] for name in names}
        for name in ("declared", "archs", "sources", "tools"):
            values[name] = tuple(values[name])
        if values["compiler"] is not None:
            values["compiler"] = tuple(values["compiler"])
        return cls(**values)

    @property
    def commit(self) -> str | None:
        """The commit, where the source is a repository."""
        return self.source.get("commit")

    def wants(self, name: str) -> bool:
        """Return whether an option of CMake's is to be on."""
        return truth(self.settings.get(name, ""))


def truth(value: str) -> bool:
    """Return how CMake reads an option's value."""
    return value.upper() not in ("", "0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND")
