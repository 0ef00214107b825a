"""S1, which torch it is, and which of the libraries that training rests on are really mapped.

Two copies of one library in a process, or the right name from the wrong place, make errors far
from their cause: a second libtorch has its own type registry, an older libnccl lacks symbols, the
libcuda of a "compat" directory does not talk to the driver of a GeForce card, and one from a
"stubs" directory talks to no driver at all.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .check import TORCHRUN, Check, Facts, Want, fail

if TYPE_CHECKING:
    from .worker import Rank

_NAMES = (
    *("libtorch", "libtorch_cpu", "libtorch_cuda", "libtorch_python", "libc10", "libc10_cuda"),
    *("libnccl", "libcudart", "libcuda", "libcudnn", "libcublas", "libcublasLt"),
)
_FILE = re.compile(r"(?P<name>lib[A-Za-z0-9_]+?)(-[0-9a-f]{8,})?\.so(\.[\d.]+)?")
"""A library's file name; wheels that bundle a library put a hash behind its name."""
_ALWAYS = ("libtorch_cpu", "libtorch_python", "libc10")
_WITH_GPU = ("libtorch_cuda", "libc10_cuda", "libnccl", "libcudart", "libcuda")
_DRIVER = "libcuda"
_NEVER = ("compat", "stubs")


def home() -> str:
    """Return where this interpreter's own torch is, if it has one."""
    return str(Path(sysconfig.get_path("platlib")).resolve() / "torch")


def imported(facts: Facts, want: Want) -> str:
    """Decide whether each process imported the environment's own torch; torchrun is no rank."""
    wanted = facts[min(facts)]["identity"]["torch"]
    for number, fact in facts.items():
        version, path = fact["identity"]["torch"], fact["identity"]["torch_path"]
        if (version, path) != (wanted, want.torch_path):
            rank = fact["identity"].get("rank")
            who = "torchrun" if rank is None else f"rank {number}"
            expected = f"expected {wanted} in {want.torch_path}"
            fail(f"{who} imported torch {version} from {path}, {expected}", rank)
    return f"torch {wanted}"


def measure(it: Rank) -> None:
    """Record the fact "libraries"."""
    with it.journal.measuring("libraries") as value:
        value.update(read())


def read(maps: Path = Path("/proc/self/maps"), prefix: str = sys.prefix) -> dict[str, Any]:
    """Return the fact "libraries": which files are mapped, and which of them this environment has.

    + maps: the process's memory map; prefix: the virtual environment
    """
    mapped = parse(maps.read_text(errors="replace").splitlines())
    packages = next(Path(prefix).glob("lib/python3*/site-packages"), Path(prefix))
    own = {
        name: [
            str(path.resolve())
            for folder in ("torch/lib", "nvidia/*/lib")
            for path in packages.glob(f"{folder}/{name}[.-]*")
        ]
        for name in mapped
    }
    return {"prefix": str(Path(prefix).resolve()), "mapped": mapped, "own": own}


def parse(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return library -> the paths of its mapped files, from the lines of a memory map."""
    found: dict[str, set[str]] = {}
    for line in lines:
        fields = line.rstrip("\n").split(maxsplit=5)
        file = _FILE.match(fields[5].rpartition("/")[2]) if len(fields) == 6 else None
        if file and fields[5].startswith("/") and file["name"] in _NAMES:
            found.setdefault(file["name"], set()).add(fields[5])
    return {name: sorted(paths) for name, paths in sorted(found.items())}


def _libraries(facts: Facts, want: Want) -> str:
    for number, fact in facts.items():
        mapped: Mapping[str, Sequence[str]] = fact["libraries"]["mapped"]
        for name, paths in mapped.items():
            if len(paths) > 1:
                fail(f"{name} is mapped {len(paths)} times: {', '.join(paths)}", number)
            if sentence := _misplaced(name, paths[0], fact["libraries"]):
                fail(sentence, number)
        wanted = _ALWAYS if want.on_cpu else _ALWAYS + _WITH_GPU
        if missing := [name for name in wanted if name not in mapped]:
            fail(f"{', '.join(missing)} not mapped after `import torch` and its first use", number)
    return f"{len(mapped)} libraries, one file each"


def _misplaced(name: str, path: str, libraries: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the place of a library, None if nothing is.

    From outside of the environment a library may come only if the environment has no copy: torch
    built from source uses those of the CUDA toolkit.
    """
    if odd := next((folder for folder in _NEVER if folder in path.split("/")[:-1]), None):
        return f"{name} is taken from a {odd!r} directory: {path}"
    if name == _DRIVER or path.startswith(f"{libraries['prefix']}/"):
        return None
    own = libraries["own"][name]
    if path in own or (not own and not name.startswith(("libtorch", "libc10"))):
        return None
    return f"{name} is taken from {path}, outside of {libraries['prefix']}"


CHECKS = (
    Check("S1.import", ("identity",), imported, by=TORCHRUN),
    Check("S1.libraries", ("libraries",), _libraries, each=True, by="libraries"),
)
