"""What is to be built, where everything of it is, and with which variables and commands.

The controller imports this too: it writes the plan, and shows the commands of a build beforehand.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

SETUPTOOLS, SCIKIT = "setuptools", "scikit-build-core"
"""The two backends with which PyTorch was ever built."""

FLASH_JOBS = "FLASH_ATTENTION_MAX_JOBS"
_CCACHE_SIZE = "30G"
_MIB_PER_JOB = 2048
_MIB_PER_CUDA_JOB = 4096
_MIB_PER_FLASH_JOB = 6144
"""flash-attention's files take up to 5.3 GiB each (pytorch#130443)."""


class BuildError(Exception):
    """A build stopped.

    + sentence: what was found, what was expected, what helps
    + lines: of what a program printed, the first error first; the controller explains them
    """

    def __init__(self, sentence: str, lines: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.sentence, self.lines = sentence, tuple(lines)


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
        return is_on(self.settings.get(name, ""))

    @property
    def code(self) -> list[str]:
        """The declared architectures as nvcc names them, e.g. ["sm_120"]."""
        return sorted(f"sm_{arch.replace('.', '')}" for arch in self.archs)


def is_on(value: str) -> bool:
    """Return how CMake reads an option's value."""
    return value.upper() not in ("", "0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND")


def jobs(plan: Plan, *, counts_flash: bool, cores: int | None = None) -> int:
    """Return how many compilers may work side by side, by memory and cores; 1 at least.

    + counts_flash: the tree limits flash-attention's files by itself; else every job may be one
    """
    each = _MIB_PER_JOB
    if plan.cuda is not None:
        each = _MIB_PER_CUDA_JOB if counts_flash else _MIB_PER_FLASH_JOB
    return max(1, min(cores or len(os.sched_getaffinity(0)), plan.memory_mib // each))


def least_mib(options: Mapping[str, str]) -> int:
    """Return how much memory one compiler alone may take, by CMake's options."""
    if not is_on(options.get("USE_CUDA", "")):
        return _MIB_PER_JOB
    flash = is_on(options.get("USE_FLASH_ATTENTION", "1"))
    return _MIB_PER_FLASH_JOB if flash else _MIB_PER_CUDA_JOB


def environment(plan: Plan, place: Place, home: str) -> dict[str, str]:
    """Return the variables of everything that a build runs; of the owner's own HOME alone."""
    path = [str(place.tools / "bin"), *([f"{plan.cuda}/bin"] if plan.cuda else [])]
    made = {
        "PATH": ":".join([*path, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]),
        "HOME": home,
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
        "CCACHE_MAXSIZE": _CCACHE_SIZE,
        # In a first build most files are not in the cache: without this each would be preprocessed
        # twice. The compiler's own list of headers, which ninja needs anyway, serves as well.
        "CCACHE_DEPEND": "1",
    }
    for language in ("C", "CXX", *(("CUDA",) if plan.cuda else ())):
        made[f"CMAKE_{language}_COMPILER_LAUNCHER"] = "ccache"
    if plan.cuda is not None:
        made.update({"CUDA_HOME": plan.cuda, "CUDACXX": f"{plan.cuda}/bin/nvcc"})
        made["TORCH_CUDA_ARCH_LIST"] = ";".join(plan.archs)
        made[FLASH_JOBS] = str(max(1, plan.memory_mib // _MIB_PER_FLASH_JOB))
    if plan.compiler is not None:
        made.update({"CC": plan.compiler[0], "CXX": plan.compiler[1]})
        if plan.cuda is not None:
            made["CUDAHOSTCXX"] = plan.compiler[1]
    return made


def configure_words(plan: Plan, place: Place, backend: str) -> list[str]:
    """Return the words that configure a tree of either backend."""
    python = str(place.tools / "bin/python")
    if backend == SETUPTOOLS:
        return [python, "setup.py", "build", "--cmake-only"]
    # scikit-build-core cannot configure alone; what it would call is CMake all the same.
    words = ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    words += [f"-D{name}={value}" for name, value in plan.settings.items()]
    return [*words, f"-DPython_EXECUTABLE={python}"]


def compile_words(place: Place, number: str) -> list[str]:
    """Return the words that compile everything, `number` files at a time."""
    return ["ninja", "-C", str(place.build), "-j", number]


def wheel_words(place: Place, backend: str) -> list[str]:
    """Return the words that make a wheel of what is compiled, for a tree of either backend."""
    words = [str(place.tools / "bin/python"), "-m", "build", "--wheel", "--no-isolation"]
    words += ["-Cbuild-dir=build"] if backend == SCIKIT else []
    return [*words, "--outdir", str(place.made), str(place.source)]


def shown(plan: Plan, place: Place) -> Iterator[str]:
    """Yield what a build would run, and with which variables, as lines for a person.

    Which backend builds a tree is written in the tree alone, so both are shown.
    """
    yield f"source: {plan.git} {plan.commit}"
    yield f"tools: {' '.join(plan.tools)}, and what the tree asks for"
    for name, value in sorted(environment(plan, place, "").items()):
        if name != "HOME":
            yield f"{name}={shlex.quote(value)}"
    for backend in (SETUPTOOLS, SCIKIT):
        yield f"a tree of {backend}:"
        yield f"  configure: {shlex.join(configure_words(plan, place, backend))}"
        yield f"  wheel: {shlex.join(wheel_words(place, backend))}"
    yield f"compile: {shlex.join(compile_words(place, 'JOBS'))}"
