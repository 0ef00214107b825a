"""What is to be built, where everything of it is, and with which variables.

The controller imports this too: it writes the plan.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

CCACHE_SIZE = "30G"
MIB_PER_JOB = 2048
MIB_PER_CUDA_JOB = 4096
MIB_PER_FLASH_JOB = 6144
"""flash-attention's files take up to 5.3 GiB each (pytorch#130443)."""


class BuildError(Exception):
    """A build stopped.

    + sentence: what was found, what was expected, what helps
    + lines: of what a program printed, the first error first; the controller explains them
    """

    def __init__(self, sentence: str, lines: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.sentence, self.lines = sentence, tuple(lines)


class CommitError(BuildError):
    """What is declared is no commit of the repository: to fetch once more would not help."""


class Place:
    """One build's folder.

    + source: the tree; fetched: holds its commit, once all of it is there and on disk
    + build: CMake's folder, where PyTorch's own build has it
    + configured: in it, and holds the fingerprint of the plan for which it was made
    + boot: in which boot of the machine the last build was at work
    + tools, proof: virtual environments of what builds torch, and of the proof
    + made: where the backend puts the wheel; wheels: the wheel with the declared name
    + manifest: what that wheel is: written last, when it is proven
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state, self.pid, self.boot = root / "state.json", root / "pid", root / "boot"
        self.source, self.fetched = root / "source", root / "fetched"
        self.build = self.source / "build"
        self.configured = self.build / ".pyinfra-gpu-configured"
        self.tools, self.proof = root / "tools", root / "proof"
        self.made, self.wheels, self.manifest = root / "dist", root / "wheels", root / "wheel.json"
        self.ccache, self.reserve = root / "ccache", root / ".reserve"


@dataclass(frozen=True)
class Plan:
    """One build, as the controller writes it to FOLDER/plan.json.

    + fingerprint: of all that is declared for it; another one is another build
    + ingredients: what the fingerprint is made of, by name
    + git, commit: the source
    + version: that the wheel is to have, e.g. "2.14.1+cu130"
    + settings: CMake's options by name, all that are declared and all that would be found by chance
    + archs: compute capabilities, e.g. ["12.0"]; empty without CUDA
    + cuda: the toolkit's folder, or None
    + compiler: C and C++ compiler, or None for the host's own
    + python: the interpreter the wheel is for; uv: the installer; sources: its options for where
      packages come from
    + tools: requirements of the build beside the tree's own, with their versions
    + memory_mib: that the build may use
    + rehearsal: a tree that calls itself a stand-in is allowed
    """

    fingerprint: str
    ingredients: Mapping[str, Any]
    git: str
    commit: str
    version: str
    settings: Mapping[str, str]
    archs: Sequence[str]
    cuda: str | None
    compiler: Sequence[str] | None
    python: str
    uv: str
    cache: str
    sources: Sequence[str]
    tools: Sequence[str]
    memory_mib: int
    rehearsal: bool

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """Return the plan in a folder. Raises BuildError where it cannot be read."""
        path = folder / "plan.json"
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


def environment(plan: Plan, place: Place) -> dict[str, str]:
    """Return the variables of everything that a build runs; of the owner's own HOME alone."""
    path = [str(place.tools / "bin"), *([f"{plan.cuda}/bin"] if plan.cuda else [])]
    made = {
        "PATH": ":".join([*path, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]),
        "HOME": os.environ.get("HOME", "/"),
        "LC_ALL": "C.UTF-8",
        "GIT_TERMINAL_PROMPT": "0",
        "CMAKE_GENERATOR": "Ninja",
        "CMAKE_PREFIX_PATH": str(place.tools),
        "PYTHONNOUSERSITE": "1",
        # Both, or the version gets the commit's digits behind it.
        "PYTORCH_BUILD_VERSION": plan.version,
        "PYTORCH_BUILD_NUMBER": "1",
        **plan.settings,
        "CCACHE_DIR": str(place.ccache),
        "CCACHE_MAXSIZE": CCACHE_SIZE,
        # In a first build most files are not in the cache: without this each would be preprocessed
        # twice. The compiler's own list of headers, which ninja needs anyway, serves as well.
        "CCACHE_DEPEND": "1",
        "CMAKE_C_COMPILER_LAUNCHER": "ccache",
        "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
    }
    if plan.compiler is not None:
        made |= {"CC": plan.compiler[0], "CXX": plan.compiler[1], "CUDAHOSTCXX": plan.compiler[1]}
    if plan.cuda is not None:
        made |= {
            "CMAKE_CUDA_COMPILER_LAUNCHER": "ccache",
            "CUDA_HOME": plan.cuda,
            "CUDACXX": f"{plan.cuda}/bin/nvcc",
            "TORCH_CUDA_ARCH_LIST": ";".join(plan.archs),
            # Newer trees count these files apart; older ones meet the limit of memory instead.
            "FLASH_ATTENTION_MAX_JOBS": str(max(1, plan.memory_mib // MIB_PER_FLASH_JOB)),
        }
    return made
