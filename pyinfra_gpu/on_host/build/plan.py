"""What is to be built: the controller writes it down, the program on the host reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

SAYS = "pyinfra-gpu: "
"""Begins each line of the journal in which the program says something itself."""

FAILED = "failed in "
"""Begins what it says last where it failed; the first error is in the lines behind it."""

PRINTED = "| "
"""Begins each of these lines."""

MIB_PER_JOB = 2048
MIB_PER_CUDA_JOB = 4096
MIB_PER_FLASH_JOB = 6144
"""flash-attention's files take up to 5.3 GiB each (pytorch#130443)."""


class BuildError(Exception):
    """A build stopped: what was found, what was expected, what helps, in one sentence.

    + lines: of what a program printed, the first error first
    """

    def __init__(self, sentence: str, lines: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.sentence, self.lines = sentence, tuple(lines)


@dataclass(frozen=True)
class Plan:
    """One build, as FOLDER/plan.json holds it."""

    fingerprint: str  # of all that is declared for it; another one is another build
    ingredients: Mapping[str, Any]  # what the fingerprint is made of, by name
    git: str
    commit: str
    version: str  # that the wheel is to have, e.g. "2.14.1+cu130"
    settings: Mapping[str, str]  # CMake's options: declared, or else found by chance
    archs: Sequence[str]  # compute capabilities, e.g. ["12.0"]; empty without CUDA
    cuda: str | None  # the toolkit's folder
    compiler: Sequence[str] | None  # C and C++ compiler; None for the host's own
    python: str  # the interpreter that the wheel is for
    uv: str
    cache: str  # of uv's
    sources: Sequence[str]  # uv's options for where packages come from
    tools: Sequence[str]  # requirements of the build beside the tree's own, with their versions
    memory_mib: int  # that the build may use
    rehearsal: bool  # a tree that calls itself a stand-in is allowed

    @property
    def text(self) -> str:
        """The file's text."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Return the plan in a file. Raises BuildError where it cannot be read."""
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{field.name: known[field.name] for field in fields(cls)})
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise BuildError(f"{path} cannot be read ({error}): run the deploy again") from error

    def wants(self, name: str) -> bool:
        """Return whether an option of CMake's is to be on."""
        value = self.settings.get(name, "").upper()
        return value not in ("", "0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND")

    @property
    def code(self) -> list[str]:
        """The declared architectures as nvcc names them, e.g. ["sm_120"]."""
        return sorted(f"sm_{arch.replace('.', '')}" for arch in self.archs)

    def jobs(self, cores: int) -> int:
        """Return how many compilers may work side by side, by memory and cores; 1 at least."""
        each = MIB_PER_JOB if self.cuda is None else MIB_PER_CUDA_JOB
        return max(1, min(cores, self.memory_mib // each))
