"""Which torch each process imported, and which of the libraries under it are really mapped.

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
from typing import TYPE_CHECKING, Any

from .check import Fact, Facts, Want, fail, pairs
from .options import REHEARSAL_CPU

if TYPE_CHECKING:
    from .worker import Rank

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
        fields = line.rstrip("\n").split(maxsplit=5)
        file = _FILE.match(fields[5].rpartition("/")[2]) if len(fields) == 6 else None
        if file and fields[5].startswith("/") and file["name"] in _NAMES:
            found.setdefault(file["name"], set()).add(fields[5])
    return {name: sorted(paths) for name, paths in sorted(found.items())}


def imported(mine: Fact, want: Want, facts: Facts) -> str:
    """Judge whether a process imported the environment's own torch."""
    identity, wanted = mine["identity"], facts[min(facts)]["identity"]["torch"]
    version, path = identity["torch"], identity["torch_path"]
    if (version, path) != (wanted, want.torch_path):
        who = "" if "rank" in identity else "torchrun "
        expected = f"expected {wanted} in {want.torch_path}"
        fail(f"{who}imported torch {version} from {path}, {expected}")
    return f"torch {wanted}"


def ranks(mine: Fact, want: Want, facts: Facts) -> str:
    """Judge whether the ranks are those that were asked for, each a process of its own, all with
    the same torch: another one may reduce in another order, or not at all.
    """
    identity, others = mine["identity"], [fact["identity"] for fact in facts.values()]
    host, boot = identity["host"], identity["boot_id"]
    rank = next(number for number, each in facts.items() if each is mine)
    if left := [name for name in identity["strays"] if not name.startswith("TORCHELASTIC_")]:
        fail(f"it was started with {', '.join(left)} set")
    found = {key: identity[key] for key in ("rank", "world_size")}
    wanted = {"rank": rank, "world_size": want.ranks}
    if found != wanted:
        fail(f"it reports {pairs(found)}; expected {pairs(wanted)}")
    here = [each for each in others if each["boot_id"] == boot]
    if other := next((each["host"] for each in here if each["host"] != host), None):
        fail(f"{other} and {host} are the same machine, by its boot id")
    if sum(each["pid"] == identity["pid"] for each in here) > 1:
        fail("another rank is the same process")
    hosts = want.hosts or {others[0]["host"]: want.ranks}
    placed = {name: sum(each["host"] == name for each in others) for name in hosts}
    if len(facts) == want.ranks and placed != dict(hosts):
        fail(f"ranks per host: {pairs(placed)}; expected {pairs(hosts)}")
    if not want.hosts:
        return imported(mine, want, facts)
    versions = {each["torch"]: each["host"] for each in others}
    if len(versions) > 1:
        fail(", ".join(f"{name} has torch {version}" for version, name in versions.items()))
    return f"{len(facts)} ranks on {len(hosts)} hosts, torch {identity['torch']}"


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


# -- the store


def measure_store(it: Rank) -> None:
    """Record the fact "store": its class, its address as seen by this rank, and its server's
    threads: the server is torchrun normally, or rank 0 if sharing torchrun's store is off.
    """
    from torch.distributed import distributed_c10d

    with it.journal.measuring("store") as value:
        store: Any = distributed_c10d._get_default_store()
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        address = [getattr(store, "host", None), getattr(store, "port", None)]
        value["used"] = [type(store).__name__, *address]
        told = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        value["told"] = ["TCPStore", *told]
        value["threads"] = [*_store_threads(os.getppid()), *_store_threads(os.getpid())]


def _store_threads(pid: int) -> list[str]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    names = {(thread / "comm").read_text().strip() for thread in threads}
    return sorted(name for name in names if name.startswith("pt_tcpstore"))


def store(mine: Fact, _: Want, __: Facts) -> str:
    """Judge the store at which the ranks met."""
    store = mine["store"]
    if store["used"] != store["told"]:
        fail(f"it uses {store['used']}, its environment says {store['told']}")
    if {*store["threads"]} != {_LIBUV}:
        named = ", ".join(store["threads"]) or "none"
        fail(f"the threads of the store, here and in torchrun, are: {named}")
    return f"{store['told'][1]}:{store['told'][2]}, with libuv"
