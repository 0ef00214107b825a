"""Which of the libraries that training rests on are really mapped into a process, and from where.

Two copies of one library in a process, or the right name from the wrong place, make errors far
from their cause: a second libtorch has its own type registry, an older libnccl lacks symbols, the
libcuda of a "compat" directory does not talk to the driver of a GeForce card, and one from a
"stubs" directory talks to no driver at all.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..judge.check import Check, Expected, Facts, Finding
from ..options import REHEARSAL_CPU
from . import mapped_files

_NAMES = (
    *("libtorch", "libtorch_cpu", "libtorch_cuda", "libtorch_python", "libc10", "libc10_cuda"),
    *("libnccl", "libcudart", "libcuda", "libcudnn", "libcublas", "libcublasLt"),
)
_FILE = re.compile(r"(?P<name>lib[A-Za-z0-9_]+?)(-[0-9a-f]{8,})?\.so(\.[\d.]+)?")
"""A library's file name; wheels that bundle a library put a hash behind its name."""
_ALWAYS = ("libtorch_cpu", "libtorch_python", "libc10")
_WITH_GPU = ("libtorch_cuda", "libc10_cuda", "libnccl", "libcudart", "libcuda")
_DRIVER = ("libcuda",)
_NEVER = ("compat", "stubs")


def read(
    maps: Path = Path("/proc/self/maps"), prefix: str = sys.prefix, *, digests: bool = False
) -> dict[str, Any]:
    """Return the fact "libraries": which files are mapped, and which of them this environment has.

    + maps: the process's memory map
    + prefix: the virtual environment
    + digests: whether to read each mapped library whole, which is gigabytes with CUDA
    """
    lines = maps.read_text(errors="replace").splitlines()
    mapped = parse(lines)
    packages = next(Path(prefix).glob("lib/python3*/site-packages"), Path(prefix))
    return {
        "prefix": str(Path(prefix).resolve()),
        "mapped": mapped,
        "own": {name: _copies(packages, name) for name in mapped if name not in _DRIVER},
        "files": mapped_files.read(lines, packages.resolve()) if digests else {},
    }


def parse(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return library -> the paths of its mapped files, from the lines of a memory map."""
    found: dict[str, set[str]] = {}
    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or not fields[5].startswith("/"):
            continue
        path = fields[5].rstrip("\n")
        file = _FILE.match(path.rpartition("/")[2])
        if file and file["name"] in _NAMES:
            found.setdefault(file["name"], set()).add(path)
    return {name: sorted(paths) for name, paths in sorted(found.items())}


def _copies(packages: Path, name: str) -> list[str]:
    """Return the copies that the environment's wheels brought with them."""
    folders = ("torch/lib", "nvidia/*/lib")
    return sorted(
        str(path.resolve()) for folder in folders for path in packages.glob(f"{folder}/{name}[.-]*")
    )


def _single(facts: Facts, expected: Expected) -> Finding:
    wanted = _ALWAYS if expected.mode == REHEARSAL_CPU else _ALWAYS + _WITH_GPU
    for number, fact in facts.items():
        mapped: Mapping[str, Sequence[str]] = fact["libraries"]["mapped"]
        for name, paths in mapped.items():
            if len(paths) > 1:
                detail = f"{name} is mapped {len(paths)} times: {', '.join(paths)}"
                return Finding(False, list(paths), f"one {name}", detail, number)
        if missing := [name for name in wanted if name not in mapped]:
            detail = f"{', '.join(missing)} not mapped after `import torch` and its first use"
            return Finding(False, sorted(mapped), list(wanted), detail, number)
    measured = {name: paths[0] for name, paths in mapped.items()}
    return Finding(True, measured, list(wanted), f"{len(mapped)} libraries, one file each")


def _place(facts: Facts, _: Expected) -> Finding:
    for number, fact in facts.items():
        libraries = fact["libraries"]
        for name, paths in libraries["mapped"].items():
            for path in paths:
                if sentence := _misplaced(name, path, libraries):
                    wanted = "the driver's own" if name in _DRIVER else libraries["own"][name]
                    return Finding(False, path, wanted, sentence, number)
        files = libraries.get("files", {})
        if path := mapped_files.other(files):
            detail = f"{path} is not the file that its wheel brought: its digest is another one"
            wanted = files[path]["recorded"]
            return Finding(False, files[path]["sha256"], wanted, detail, number)
    return Finding(True, None, None, "from the environment" if not _outside(facts) else "")


def _misplaced(name: str, path: str, libraries: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the place of a library, None if nothing is.

    From outside of the environment a library may come only if the environment has no copy: torch
    built from source uses those of the CUDA toolkit.
    """
    folders = path.split("/")[:-1]
    if odd := next((folder for folder in _NEVER if folder in folders), None):
        return f"{name} is taken from a {odd!r} directory: {path}"
    if name in _DRIVER or path.startswith(f"{libraries['prefix']}/"):
        return None
    own = libraries["own"][name]
    if path in own or (not own and not name.startswith(("libtorch", "libc10"))):
        return None
    return f"{name} is taken from {path}, outside of {libraries['prefix']}"


def _outside(facts: Facts) -> bool:
    return any(
        name not in _DRIVER and not path.startswith(fact["libraries"]["prefix"])
        for fact in facts.values()
        for name, paths in fact["libraries"]["mapped"].items()
        for path in paths
    )


CHECKS: tuple[Check, ...] = (
    Check("S1.libraries", ("libraries",), _single, each=True),
    Check("S1.library_paths", ("libraries",), _place, each=True),
)
