"""Which torch each rank imported, and which of the libraries under it are really mapped.

Two copies of one library in a process, or the right name from the wrong place, make errors far
from their cause: a second libtorch has its own type registry, an older libnccl lacks symbols, the
libcuda of a "compat" directory does not talk to the driver of a GeForce card, and one from a
"stubs" directory talks to no driver at all.

And by what the ranks' store is served. `TCPStore.libuvBackend` only repeats what the client was
constructed with; the name of the server's thread tells: "pt_tcpstore_uv" with libuv, "pt_tcpstore"
without.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .check import Fact, Facts, Want, fail
from .options import REHEARSAL_CPU
from .rank import Rank

_ALWAYS = ("libtorch_cpu", "libtorch_python", "libc10")
_WITH_GPU = ("libtorch_cuda", "libc10_cuda", "libnccl", "libcudart", "libcuda")
_NAMES = (*_ALWAYS, *_WITH_GPU, "libtorch", "libcudnn", "libcublas", "libcublasLt")
_FILE = re.compile(r"(?P<name>lib[A-Za-z0-9_]+?)(-[0-9a-f]{8,})?\.so(\.[\d.]+)?")
"""A library's file name; wheels that bundle a library put a hash behind its name."""
_LIBUV = "pt_tcpstore_uv"


def home() -> str:
    """Return where this interpreter's own torch is, if it has one."""
    return str(Path(sysconfig.get_path("platlib")).resolve() / "torch")


def measure(it: Rank) -> None:
    """Record the fact "libraries": which are mapped, and which of them this environment has."""
    prefix = Path(sys.prefix).resolve()
    packages = next(prefix.glob("lib/python3*/site-packages"), prefix)
    with it.journal.measuring("libraries") as value:
        mapped = parse(Path("/proc/self/maps").read_text(errors="replace").splitlines())
        own = {
            name: [
                str(path.resolve())
                for folder in ("torch/lib", "nvidia/*/lib")
                for path in packages.glob(f"{folder}/{name}[.-]*")
            ]
            for name in mapped
        }
        value.update(prefix=str(prefix), mapped=mapped, own=own)


def parse(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return library -> the paths of its mapped files, from the lines of a memory map."""
    found: dict[str, set[str]] = {}
    for line in lines:
        path = line[line.find("/") :].strip() if "/" in line else ""
        file = _FILE.match(path.rpartition("/")[2])
        if file and file["name"] in _NAMES:
            found.setdefault(file["name"], set()).add(path)
    return {name: sorted(paths) for name, paths in sorted(found.items())}


def measure_store(it: Rank) -> None:
    """Record the fact "store": the threads of its server, which torchrun is normally, or rank 0 if
    sharing torchrun's store is off.
    """
    with it.journal.measuring("store") as value:
        threads = [
            (thread / "comm").read_text().strip()
            for pid in (os.getppid(), os.getpid())
            for thread in Path(f"/proc/{pid}/task").iterdir()
        ]
        value["threads"] = sorted({name for name in threads if name.startswith("pt_tcpstore")})


# -- judged


def imported(mine: Fact, want: Want, facts: Facts) -> str:
    """Judge whether the ranks have one torch, on one host the environment's own; another one may
    reduce in another order, or not at all. And whether several hosts are several machines.
    """
    identity, others = mine["identity"], [fact["identity"] for fact in facts.values()]
    host, version, path = identity["host"], identity["torch"], identity["torch_path"]
    if not want.hosts and path != want.torch_path:
        fail(f"imported torch {version} from {path}, expected the one in {want.torch_path}")
    for other in others:
        if other["torch"] != version:
            fail(f"{other['host']} has torch {other['torch']}, {host} has torch {version}")
        if other["boot_id"] == identity["boot_id"] and other["host"] != host:
            fail(f"{other['host']} and {host} are the same machine, by its boot id")
    return f"torch {version}"


def mapped(mine: Fact, want: Want, _: Facts) -> str:
    """Judge whether each library is mapped once, from the environment or the driver."""
    found: Mapping[str, Sequence[str]] = mine["libraries"]["mapped"]
    for name, paths in found.items():
        if len(paths) > 1:
            fail(f"{name} is mapped {len(paths)} times: {', '.join(paths)}")
        if sentence := _misplaced(name, paths[0], mine["libraries"]):
            fail(f"{name} is taken from {sentence}")
    wanted = _ALWAYS if want.mode == REHEARSAL_CPU else _ALWAYS + _WITH_GPU
    if missing := [name for name in wanted if name not in found]:
        fail(f"{', '.join(missing)} not mapped after `import torch` and its first use")
    return f"{len(found)} libraries, one file each"


def _misplaced(name: str, path: str, libraries: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the place of a library, None if nothing is.

    From outside of the environment a library may come only if the environment has no copy: torch
    built from source uses those of the CUDA toolkit.
    """
    for odd in ("compat", "stubs"):
        if odd in path.split("/")[:-1]:
            return f"a {odd!r} directory: {path}"
    own, prefix = libraries["own"].get(name, ()), libraries["prefix"]
    of_toolkit = not own and not name.startswith(("libtorch", "libc10"))
    if name == "libcuda" or path.startswith(f"{prefix}/") or path in own or of_toolkit:
        return None
    return f"{path}, outside of {prefix}"


def store(mine: Fact, _: Want, __: Facts) -> str:
    """Judge the store at which the ranks met."""
    if mine["store"]["threads"] != [_LIBUV]:
        named = ", ".join(mine["store"]["threads"]) or "none"
        fail(f"the threads of the store, here and in torchrun, are: {named}")
    return "with libuv"
